"""Power limits measured in a training that only prints its epochs, on simulated GPUs with a virtual clock."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.agents.simulated_node import SimulatedNode, simulated_node
from support.backends.model_backend import job
from support.backends.sample_reports import START
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.local.output_follower import OutputFollower
from wattloop_operator.reconcile.attempt.report_effect import OutputReport
from wattloop_operator.reconcile.learning.decision import Attempt, decide

# Of an A100 in a second at its highest clock.
TERAFLOP = 312.0
EPOCH_SECONDS = 100
# The output is read this many times an epoch.
POLLS = 500
LOGS: dict[str, Any] = {"reporting": {"source": "Logs"}}


@pytest.fixture(scope="module")
def node() -> Iterator[SimulatedNode]:
    with simulated_node(1) as simulated:
        yield simulated


class Followed:
    """A training whose output is followed, one poll after another."""

    def __init__(self, node: SimulatedNode, folder: Path, selector: str = "Energy") -> None:
        followed = job(power={"mode": "Auto", "selector": selector}, **LOGS)
        snapshot = Snapshot(followed, measures_limits_by_output=True)
        recurrence = decide(snapshot, Attempt(0, 0, "slot", START))
        assert recurrence.spec.profile_power_limits
        self.reports: list[OutputReport] = []
        self._node = node
        self._log = folder / "log"
        self.follower = OutputFollower(
            recurrence,
            followed.spec.power,
            output=self._log,
            folder=folder,
            agent_socket=str(node.socket),
            variables={},
            observe=lambda namespace, name, seen: self.reports.append(seen),
        )
        self.follower.begin_gpus()
        self._log.touch()

    @property
    def limit_watts(self) -> float:
        return self._node.gpus.describe().gpus[0].power_limit_watts

    @property
    def _energy_joules(self) -> float:
        return self._node.gpus.describe().gpus[0].energy_microjoules / 1e6

    def train(self, epoch: int, accuracy: float = 0.1) -> tuple[float, float]:
        """Run an epoch and print its end; returns its energy and time."""
        before, began = self._energy_joules, self._node.gpus.clock_seconds(0)
        for _ in range(POLLS):
            self._node.gpus.occupy(0, work=EPOCH_SECONDS * TERAFLOP / POLLS, intensity=0.8)
            self.follower.report_new_lines()
        used = self._energy_joules - before, self._node.gpus.clock_seconds(0) - began
        self.prints(f"epoch={epoch} accuracy={accuracy}")
        return used

    def prints(self, line: str) -> None:
        """Print a line, which is read at once."""
        with self._log.open("a") as log:
            log.write(f"{line}\n")
        self.follower.report_new_lines()


def test_each_limit_is_measured_over_an_epoch_and_the_best_one_is_held(node: SimulatedNode, tmp_path: Path) -> None:
    training = Followed(node, tmp_path)
    truth = {}
    for epoch in range(1, 20):
        watts = training.limit_watts
        used = training.train(epoch)
        if epoch > 1:
            truth[watts] = used
        if len(training.reports[-1].gpus.profile) == 5:
            break
    profile = training.reports[-1].gpus.profile
    assert [point.power_limit_watts for point in profile] == [400, 325, 250, 175, 100]
    for point in profile:
        energy, time = truth[point.power_limit_watts]
        assert point.energy_joules / point.epochs == pytest.approx(energy, rel=0.02)
        assert point.time_seconds / point.epochs == pytest.approx(time, rel=0.02)
    assert epoch == 6
    cheapest = min(profile, key=lambda point: point.energy_joules / point.epochs)
    assert training.limit_watts == cheapest.power_limit_watts
    training.follower.release()
    assert training.limit_watts == 400


def test_no_further_limit_is_held_after_what_may_be_the_last_epoch(node: SimulatedNode, tmp_path: Path) -> None:
    """A run of 400 and 325 W was listed, and plotted, as one of 250 W."""
    training = Followed(node, tmp_path)
    for epoch in (1, 2):
        training.train(epoch)
    assert training.limit_watts == 325
    training.train(3, accuracy=0.95)
    report = training.reports[-1].gpus
    assert [point.power_limit_watts for point in report.profile] == [400, 325]
    assert report.power_limit_watts == training.limit_watts == 325
    # With consecutiveEvaluations it may go on.
    training.train(4)
    assert training.limit_watts == 250
    training.follower.release()


def test_an_output_in_no_form_that_counts_is_warned_of_once(
    node: SimulatedNode, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training = Followed(node, tmp_path)
    for epoch in range(1, 6):
        training.prints(f"Epoch {epoch}: 8{epoch}/100 (accuracy)")
        training.prints(f"Accuracy: 8{epoch}/100")
    training.follower.release()
    (message,) = [each for each in caplog.messages if "names accuracy" in each]
    assert "the line 'Accuracy: 82/100' names accuracy" in message


def test_only_a_local_run_measures_limits_by_the_output_and_only_with_logs() -> None:
    def profiles(source: str, *, local: bool) -> bool:
        snapshot = Snapshot(job(reporting={"source": source}), measures_limits_by_output=local)
        return decide(snapshot, Attempt(0, 0, "slot", START)).spec.profile_power_limits

    assert [profiles(source, local=True) for source in ("Push", "Logs", "KubeflowTrainer")] == [True, True, False]
    assert [profiles(source, local=False) for source in ("Push", "Logs", "TerminationMessage")] == [True, False, False]


def test_of_evaluations_that_are_read_at_once_all_but_the_last_are_followed(
    node: SimulatedNode, tmp_path: Path
) -> None:
    training = Followed(node, tmp_path)
    training.prints("epoch=1 accuracy=0.1\nepoch=2 accuracy=0.2")
    assert [(each.epoch, each.is_followed) for each in training.reports] == [(1, True), (2, False)]
    training.follower.release()
