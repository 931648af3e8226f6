"""The power limit is chosen while a training runs: with a real agent on simulated GPUs, and without one."""

import dataclasses
import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import nvml_simulator
from support.agents.simulated_node import simulated_node
from support.reporting.report_server import ReportServer
from wattloop import PowerLimitOptimizer, Run
from wattloop.errors import UsageError
from wattloop.gpus.agent import AgentConnection
from wattloop.power.selectors import Energy, MeasuredLimit, Time
from wattloop.power.sequential_design import Requirements
from wattloop_research.command_line.power import read_power_profile

WORK_OF_A_SECOND = 312.0  # teraflop of an A100 in a second at its highest clock
LIMITS = (400.0, 300.0, 200.0, 100.0)


@dataclasses.dataclass(frozen=True)
class Node:
    """Simulated GPUs and their agent."""

    gpus: nvml_simulator.Machine
    socket: Path

    @property
    def limits(self) -> list[float]:
        return [gpu.power_limit_watts for gpu in self.gpus.describe().gpus]

    def train(self, optimizer: PowerLimitOptimizer, epochs: int = 60, steps: int = 4, evaluation: float = 0.0) -> None:
        """Epochs of a few steps of about a second, with an evaluation between them."""
        for epoch in range(epochs):
            optimizer.on_epoch_begin(epoch)
            for _ in range(steps):
                self.gpus.occupy([0, 1], work=WORK_OF_A_SECOND, intensity=0.9)
                optimizer.on_step_end()
            optimizer.on_epoch_end(epoch)
            if evaluation:
                self.gpus.idle([0, 1], evaluation)


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with simulated_node(2) as simulated:
        yield Node(simulated.gpus, simulated.socket)


def test_by_hand_the_best_limit_is_held_until_the_end(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    with PowerLimitOptimizer(
        node.socket, Energy(), limits_watts=LIMITS, profile_file=file, environment={}
    ) as optimizer:
        assert optimizer.result is None
        node.train(optimizer)
        result = optimizer.result
        assert not optimizer.measuring
        assert node.limits == [result.power_limit_watts] * 2
    assert node.limits == [400.0, 400.0]
    assert (result.reason, result.selector, result.mode) == ("Certain", "Energy", "Measured")
    assert result.doubt <= 0.05
    assert [each.power_limit_watts for each in result.measurements] == list(LIMITS)
    for each in result.measurements:
        assert each.windows >= 1
        assert each.gpus == 2
        assert each.energy_interval_joules[0] < each.energy_joules < each.energy_interval_joules[1]
        assert each.time_interval_seconds[0] < each.time_seconds < each.time_interval_seconds[1]
    # The file is what `wattloop power select --profile` reads.
    measured = [each.measurement for each in reversed(result.measurements)]
    assert list(read_power_profile(file)) == measured
    assert Energy().select(measured).power_limit_watts == result.power_limit_watts
    assert json.loads(file.read_text())["doubt"] == result.doubt


def test_an_evaluation_between_epochs_is_not_measured(node: Node) -> None:
    seconds = []
    for evaluation in (0.0, 30.0):
        with PowerLimitOptimizer(node.socket, Time(), limits_watts=LIMITS, environment={}) as optimizer:
            node.train(optimizer, evaluation=evaluation)
            seconds.append([each.time_seconds for each in optimizer.result.measurements])
    assert seconds[1] == pytest.approx(seconds[0], rel=0.2)


def test_steps_of_different_size_count_by_their_samples(node: Node) -> None:
    with PowerLimitOptimizer(node.socket, Time(), limits_watts=(400.0, 200.0), environment={}) as optimizer:
        for step in range(80):
            samples = (64, 16)[step % 2]
            node.gpus.occupy([0, 1], work=WORK_OF_A_SECOND * samples / 64, intensity=0.5)
            optimizer.on_step_end(samples)
        assert optimizer.result.measurements[0].time_seconds == pytest.approx(1 / 64, rel=0.05)


def test_the_limits_are_measured_again_when_the_metric_crosses_a_threshold(node: Node, tmp_path: Path) -> None:
    with PowerLimitOptimizer(
        node.socket,
        Energy(),
        limits_watts=(400.0, 200.0),
        profile_again_at=(0.5, 0.9),
        profile_file=tmp_path / "profile.json",
        environment={},
    ) as optimizer:
        for metric in (0.1, 0.6, 0.55, 0.95):
            node.train(optimizer, epochs=20)
            optimizer.on_epoch_end(metric=metric)
        node.train(optimizer, epochs=20)
        assert len(optimizer.results) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["profile-2.json", "profile-3.json", "profile.json"]


def test_the_budget_ends_the_measurement(node: Node) -> None:
    requirements = Requirements(margin=0.0, max_doubt=0.01, budget_seconds=60.0)
    with PowerLimitOptimizer(
        node.socket, Energy(), requirements=requirements, limits_watts=(400.0, 399.0), environment={}
    ) as optimizer:
        node.train(optimizer)
        assert optimizer.result.reason == "BudgetSpent"
        assert optimizer.result.measured_seconds >= 60.0
        assert node.limits == [optimizer.result.power_limit_watts] * 2


def test_an_exception_of_the_training_releases_the_limit(node: Node) -> None:
    def train() -> None:
        with PowerLimitOptimizer(AgentConnection(node.socket), limits_watts=(200.0,), environment={}) as optimizer:
            optimizer.on_epoch_begin()
            assert node.limits == [200.0, 200.0]
            raise MemoryError

    with pytest.raises(MemoryError):
        train()
    assert node.limits == [400.0, 400.0]


def test_with_a_run_the_limit_is_reported_and_released(node: Node, report_server: ReportServer) -> None:
    variables = {
        "WATTLOOP_JOB": "team/digits",
        "WATTLOOP_REPORT_URL": report_server.url,
        "WATTLOOP_AGENT_SOCKET": str(node.socket),
        "WATTLOOP_MAX_EPOCHS": "1",
    }
    with (
        Run(environment=variables) as run,
        PowerLimitOptimizer(run, limits_watts=(250.0,), environment={}) as optimizer,
    ):
        for _ in run.epochs():
            node.train(optimizer, epochs=3)
            run.report(metric=0.5)
        assert node.limits == [250.0, 250.0]
        optimizer.end()
        assert node.limits == [400.0, 400.0]
    assert report_server.reports[-2]["power_limit_watts"] == 250.0


def test_the_operators_decision_precedes_the_optimizer(
    node: Node, report_server: ReportServer, caplog: pytest.LogCaptureFixture
) -> None:
    variables = {
        "WATTLOOP_JOB": "team/digits",
        "WATTLOOP_REPORT_URL": report_server.url,
        "WATTLOOP_AGENT_SOCKET": str(node.socket),
        "WATTLOOP_POWER_LIMIT_WATTS": "300",
    }
    with Run(environment=variables) as run, PowerLimitOptimizer(run, limits_watts=LIMITS, environment={}) as optimizer:
        node.train(optimizer, epochs=2)
        assert not optimizer.measuring
        assert node.limits == [300.0, 300.0]
    assert "the operator decides" in caplog.text


@pytest.mark.parametrize("agent", [None, "/nowhere/agent.sock"])
def test_without_an_agent_the_training_continues_with_one_warning(
    agent: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), PowerLimitOptimizer(agent, environment={}) as optimizer:
        for epoch in range(3):
            optimizer.on_epoch_begin(epoch)
            optimizer.on_step_end()
            optimizer.on_epoch_end(epoch, metric=0.5)
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["power limits are not measured"]
    assert optimizer.results == []


def test_one_of_several_ranks_without_a_group_measures_nothing_and_says_what_to_do(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    variables = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    with PowerLimitOptimizer(node.socket, limits_watts=LIMITS, environment=variables) as optimizer:
        node.train(optimizer, epochs=1)
    assert "one of 2 processes" in caplog.text
    assert "call torch.distributed.init_process_group before the first epoch" in caplog.text
    assert optimizer.results == []
    assert node.limits == [400.0, 400.0]


def test_a_limit_that_the_gpu_rejects_ends_the_measurement_with_a_warning(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    with PowerLimitOptimizer(node.socket, limits_watts=(400.0, 50.0), environment={}) as optimizer:
        node.train(optimizer, epochs=5)
        assert not optimizer.measuring
    assert "the power limit of 50 W is not held" in caplog.text
    assert node.limits == [400.0, 400.0]


class _FailsLater:
    """A selector with a defect that only real measurements show."""

    def select(self, measurements: Sequence[MeasuredLimit]) -> MeasuredLimit:
        if len(measurements) > 2:
            raise ZeroDivisionError
        return measurements[0]


class _Invents:
    def select(self, measurements: Sequence[MeasuredLimit]) -> MeasuredLimit:
        return MeasuredLimit(1.0, 1.0, 1.0)


def test_a_selector_that_fails_later_does_not_end_the_training(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    with PowerLimitOptimizer(node.socket, _FailsLater(), limits_watts=LIMITS, environment={}) as optimizer:
        node.train(optimizer)
        assert node.limits == [400.0, 400.0]
    assert "the selector failed: ZeroDivisionError()" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"selector": _Invents()}, "_Invents returned"),
        ({"selector": object()}, "it must be an object with a method select"),
        ({"mode": "Guessed"}, "Measured, Fitted"),
        ({"limits_watts": (100.0, -1.0)}, "positive number of watts"),
        ({"limits_watts": (100.0, 100.0)}, "twice"),
        ({"profile_again_at": (0.5, 0.9, 0.7)}, "all rise or all fall"),
    ],
)
def test_an_invalid_argument_is_an_error_at_the_start(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PowerLimitOptimizer(environment={}, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("samples", [0.0, -1.0, float("nan"), float("inf")])
def test_a_step_without_samples_is_an_error(samples: float) -> None:
    with pytest.raises(UsageError, match="positive number"):
        PowerLimitOptimizer(environment={}).on_step_end(samples)


def test_a_written_profile_is_used_instead_of_measuring_also_by_several_ranks(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    options = {"limits_watts": LIMITS, "profile_file": file}
    with PowerLimitOptimizer(node.socket, Energy(), environment={}, **options) as first:
        node.train(first)
        measured = first.result
    written = file.read_bytes()
    ranks = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    for environment in ({}, ranks):
        with PowerLimitOptimizer(node.socket, Energy(), environment=environment, **options) as again:
            again.on_epoch_begin()
            assert not again.measuring
            assert again.result == measured
            assert node.limits == [measured.power_limit_watts] * 2
    # Another selector chooses among the same measurements.
    with PowerLimitOptimizer(node.socket, Time(), environment={}, **options) as fastest:
        fastest.on_epoch_begin()
        assert (
            fastest.result.power_limit_watts
            == min(measured.measurements, key=lambda m: m.time_seconds).power_limit_watts
        )
    assert file.read_bytes() == written


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"measurements": []}', '{"measurements": [{"gpus": 2}]}', "other"]
)
def test_a_profile_that_does_not_fit_is_measured_again(
    node: Node, tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wattloop")
    file = tmp_path / "profile.json"
    if content == "other":
        with PowerLimitOptimizer(
            node.socket, Energy(), limits_watts=(300.0, 200.0), profile_file=file, environment={}
        ) as optimizer:
            node.train(optimizer)
    else:
        file.write_text(content)
    with PowerLimitOptimizer(
        node.socket, Energy(), limits_watts=LIMITS, profile_file=file, environment={}
    ) as optimizer:
        optimizer.on_epoch_begin()
        assert optimizer.measuring
        assert optimizer.results == []
    assert "the power limits are measured again: " in caplog.text
