"""Scripts of strangers on a real node: each reaches, learns what is cheaper, and is shown nothing false.

The definitions are those of tests/strangers, which runs the same scripts through `wattloop run`. Jobs that the node's
four GPUs can hold run at the same time. The usual set has the strangers that must be told something; those that learn,
each beside a job that always has the default batch size, are of the exhaustive one, as `wattloop run` shows the same.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from nvml_simulator import Machine
from support.control_plane.commands import ClusterCommand
from support.control_plane.waiting import Object
from support.kubernetes_node.node import About
from support.kubernetes_node.users import make_editor
from support.node.digits import Runs
from support.node.waits import await_status, is_counted, saving_of
from support.strangers.definitions import (
    ACCUMULATION,
    CRASH_AT_ONCE,
    CRASH_LATE,
    GROWING_DATA,
    LOWER_IS_BETTER,
    MAX_RATIO,
    NOISY_METRIC,
    PLATEAU,
    PROCESSOR_ONLY,
    RECURRENCES,
    SLOW_START,
    TWO_RANKS,
    compared_cost,
    cost_error,
    default_recurrences,
)
from support.strangers.on_node import node_job, put_scripts, put_volume
from support.strangers.stranger import Stranger

NAMESPACE = "strangers"
FIXED: dict[str, Any] = {"mode": "Fixed"}
# Four jobs at the same time, with several attempts each.
ROUND_SECONDS = 600.0
# An epoch takes half a second, so that the operator can end a run between two of them.
PACE = 0.05


@dataclass(frozen=True, eq=False)
class Entry:
    """A job of the table.

    Attributes:
        stranger: The script.
        recurrences: How many of its runs are requested.
        suffix: Of the job's name.
        spec: Fields of the spec that differ from the stranger's.
        pace: Real seconds that a second of its GPU takes.
    """

    stranger: Stranger
    recurrences: int
    suffix: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)
    pace: float = 0.0

    @property
    def name(self) -> str:
        """Name of the job."""
        return f"{self.stranger.name}{self.suffix}"

    def job(self) -> Object:
        """Its manifest."""
        return node_job(self.stranger, self.name, self.pace, **self.spec)


def compared(stranger: Stranger) -> tuple[Entry, Entry]:
    """A stranger's job, and the one that always has its default batch size."""
    return Entry(stranger, RECURRENCES), Entry(stranger, default_recurrences(stranger), "-default", FIXED)


# Jobs of the same line run at the same time, when one of them is first looked at.
TABLE = (
    (
        Entry(PLATEAU, 3, pace=PACE),
        Entry(LOWER_IS_BETTER, 2, pace=PACE),
        Entry(PROCESSOR_ONLY, 2),
        Entry(CRASH_AT_ONCE, 2),
    ),
    (*compared(SLOW_START), *compared(ACCUMULATION)),
    (*compared(NOISY_METRIC), *compared(CRASH_LATE)),
    (*compared(GROWING_DATA),),
    (*compared(TWO_RANKS),),
)
COMPARED = (SLOW_START, ACCUMULATION, NOISY_METRIC, CRASH_LATE, GROWING_DATA, TWO_RANKS)


@dataclass(frozen=True)
class Ended:
    """A job after its runs.

    Attributes:
        attempts: The attempts of each recurrence.
        status: The job's status.
        shown: What kubectl shows of the job and of its runs.
    """

    attempts: list[list[Object]]
    status: Object
    shown: str

    @property
    def results(self) -> list[list[str]]:
        """Results of the attempts of each recurrence."""
        return [[each["status"]["result"] for each in attempts] for attempts in self.attempts]

    @property
    def costs(self) -> list[float]:
        """Cost of each recurrence, with all of its attempts."""
        return [sum(float(each["status"]["costJoules"]) for each in attempts) for attempts in self.attempts]

    @property
    def batch_sizes(self) -> set[int]:
        """The batch sizes that ran."""
        return {each["spec"]["batchSize"] for attempts in self.attempts for each in attempts}

    def condition(self, kind: str) -> Object:
        """A condition of the job; empty if it has none of this type."""
        return next((each for each in self.status["conditions"] if each["type"] == kind), {})


class EndedJobs:
    """The jobs of the table after their runs, by name: the first look at one runs its line."""

    def __init__(self, user: ClusterCommand, cluster: DynamicClient, gpus: Machine) -> None:
        self._user, self._cluster, self._gpus = user, cluster, gpus
        self._ended: dict[str, Ended] = {}

    def __getitem__(self, name: str) -> Ended:
        if name not in self._ended:
            (line,) = (line for line in TABLE if name in {entry.name for entry in line})
            for entry, job in run_together(line, self._user, self._cluster, self._gpus):
                self._ended[entry.name] = job
        return self._ended[name]


@pytest.fixture(scope="module")
def ended(
    node: About, kubectl: ClusterCommand, core: client.CoreV1Api, cluster: DynamicClient, gpus: Machine
) -> EndedJobs:
    """All jobs of the table after their runs."""
    user = kubectl.as_user(make_editor(node, kubectl, core, NAMESPACE))
    put_scripts(user, NAMESPACE)
    put_volume(node, kubectl, NAMESPACE, [entry.name for line in TABLE for entry in line])
    return EndedJobs(user, cluster, gpus)


def run_together(
    line: tuple[Entry, ...], user: ClusterCommand, cluster: DynamicClient, gpus: Machine
) -> list[tuple[Entry, Ended]]:
    """Run jobs at the same time, in rounds of one run of each."""
    user.apply(*(entry.job() for entry in line), namespace=NAMESPACE)
    runs = {entry: Runs(user, cluster, entry.name, NAMESPACE) for entry in line}
    for index in range(max(entry.recurrences for entry in line)):
        # Each GPU has its own time, and two of one pod must agree on it.
        gpus.idle(sorted(gpu.uuid for gpu in gpus.describe().gpus), 0)
        due = [entry for entry in line if index < entry.recurrences]
        for entry in due:
            runs[entry].ask(f"run-{index}")
        for entry in due:
            await_end(cluster, entry, index + 1)
    found = [(entry, ended_job(user, runs[entry], entry)) for entry in line]
    # The node takes minutes to end with the pods of all lines.
    user("delete", "rtj", "--all", "--wait=false", namespace=NAMESPACE)
    return found


def await_end(cluster: DynamicClient, entry: Entry, recurrences: int) -> None:
    """Wait until so many recurrences of a job are over."""
    what = f"to have ended {recurrences} recurrences"
    await_status(cluster, NAMESPACE, entry.name, lambda status: is_counted(status, recurrences), what, ROUND_SECONDS)


def ended_job(user: ClusterCommand, runs: Runs, entry: Entry) -> Ended:
    """A job after its runs, with what kubectl shows of it."""
    attempts = runs.recurrences()
    by_index = [[each for each in attempts if each["spec"]["index"] == index] for index in range(entry.recurrences)]
    names = [each["metadata"]["name"] for each in attempts]
    shown = [
        user("get", "rtj", entry.name, "--output=wide", namespace=NAMESPACE),
        user("get", "trec", *names, "--output=wide", namespace=NAMESPACE),
        user("describe", "rtj", entry.name, namespace=NAMESPACE),
        user("describe", "trec", *names, namespace=NAMESPACE),
    ]
    return Ended(by_index, runs.status(), "\n".join(shown))


@pytest.mark.exhaustive
@pytest.mark.parametrize("stranger", COMPARED, ids=lambda stranger: stranger.name)
def test_a_stranger_s_script_reaches_each_time_and_costs_at_most_the_default_once_learned(
    stranger: Stranger, ended: EndedJobs
) -> None:
    job, default = ended[stranger.name], ended[f"{stranger.name}-default"]
    for each in (job, default):
        assert [results[-1] for results in each.results] == ["Reached"] * len(each.results), each.results
        assert each.status["state"] == "Waiting"
        assert each.condition("TargetUnreachable")["status"] == "False"
        assert each.condition("Ready")["status"] == "True"
        assert not each.condition("Learns")
    learned, usual = compared_cost(job.costs), compared_cost(default.costs)
    error = math.hypot(cost_error(job.costs), cost_error(default.costs))
    assert learned <= MAX_RATIO * usual + 2 * error, (job.costs, default.costs)
    claimed_percent = float(saving_of(job.status, "LatestCost").get("low", 0))
    assert claimed_percent <= 0 or learned < usual, job.shown


@pytest.mark.exhaustive
@pytest.mark.parametrize("stranger", COMPARED, ids=lambda stranger: stranger.name)
def test_the_first_run_is_the_default_and_shows_no_saving(stranger: Stranger, ended: EndedJobs) -> None:
    for each in (ended[stranger.name], ended[f"{stranger.name}-default"]):
        first = next(row for row in each.status["recentRecurrences"] if row["index"] == 0)
        assert first["batchSize"] == stranger.default
        assert "savingPercent" not in first, each.shown


@pytest.mark.exhaustive
def test_a_slow_start_is_never_a_reason_to_stop(ended: EndedJobs) -> None:
    for name in (SLOW_START.name, f"{SLOW_START.name}-default"):
        assert {result for results in ended[name].results for result in results} == {"Reached"}, ended[name].shown


@pytest.mark.exhaustive
def test_a_failure_of_the_storage_is_named_and_excludes_no_batch_size(ended: EndedJobs) -> None:
    for name in (CRASH_LATE.name, f"{CRASH_LATE.name}-default"):
        job = ended[name]
        assert [results.count("Crashed") for results in job.results] == [0, 1, *[0] * (len(job.results) - 2)], job.shown
        crashed = job.attempts[1][0]["status"]
        assert "Input/output error: '/datasets/shard-00017.tar'" in crashed["message"]
        assert not any(arm["pruned"] for arm in job.status["arms"])


def test_a_target_beyond_the_model_is_said_to_be_unreachable_at_little_cost(ended: EndedJobs) -> None:
    job = ended[PLATEAU.name]
    unreachable = job.condition("TargetUnreachable")
    assert unreachable["status"] == "True"
    assert re.search(
        r"a threshold of 0\.7\d+ would be reached, at the lowest cost with batch size \d+", unreachable["message"]
    )
    assert (job.status["state"], job.condition("Ready")["status"]) == ("Unreachable", "False")
    assert saving_of(job.status, "Cost")["text"] == "not known yet"
    # Once it is known, a recurrence is one attempt, and ends at its plateau.
    assert [len(results) for results in job.results[1:]] == [1] * (len(job.results) - 1), job.shown
    assert job.results[-1] == ["Plateaued"], job.shown
    assert float(job.attempts[-1][0]["status"]["epochs"]) < PLATEAU.max_epochs
    assert job.costs[-1] < job.costs[0] / 2


def test_a_loss_reaches_with_a_value_below_its_threshold(ended: EndedJobs) -> None:
    job = ended[LOWER_IS_BETTER.name]
    assert job.results == [["Reached"]] * 2
    for (attempt,) in job.attempts:
        progress = attempt["status"]["progress"]
        losses = [float(metric) for _, metric in progress["curve"]]
        assert losses[-1] == float(progress["metric"]) <= float(LOWER_IS_BETTER.threshold) < min(losses[:-1])
        assert float(attempt["status"]["costJoules"]) > 0
    assert "no energy was measured" not in job.shown


def test_without_a_gpu_no_energy_and_no_saving_is_claimed(ended: EndedJobs) -> None:
    job = ended[PROCESSOR_ONLY.name]
    assert job.results == [["Reached"]] * 2
    for (attempt,) in job.attempts:
        status = attempt["status"]
        assert "no energy was measured" in status["message"]
        assert "request one in its template" in status["message"]
        assert "costJoules" not in status
        assert status["energy"] == "unknown"
    assert job.status["recentRecurrences"][0]["energy"] == "unknown"
    assert all("value" not in each for each in job.status["savings"])
    assert saving_of(job.status, "Cost")["text"] == "not known yet"
    assert job.condition("Learns")["status"] == "False"
    assert job.batch_sizes == {PROCESSOR_ONLY.default}


def test_a_script_of_another_environment_is_tried_twice_then_once_and_says_its_own_error(ended: EndedJobs) -> None:
    job = ended[CRASH_AT_ONCE.name]
    assert job.results == [["StartFailed"] * 2, ["StartFailed"]]
    assert job.batch_sizes == {CRASH_AT_ONCE.default}
    ready = job.condition("Ready")
    assert "ModuleNotFoundError: No module named 'polars_of_another_machine'" in ready["message"]
    assert "no batch size is blamed" in ready["message"]
    assert (job.status["state"], ready["status"]) == ("Failing", "False")
    assert not job.status["arms"]
