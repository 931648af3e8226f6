"""The pipeline of examples/pipeline in two pods: measured, planned by the operator, run under its plan, and killed.

The first attempt measures the instructions while the operator is restarted, and runs the plan until one of its ranks is
killed. The second attempt has the plan from its begin. The GPUs' virtual clock makes all figures independent of the
machine's load.
"""

import base64
import contextlib
import itertools
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kubernetes.dynamic import DynamicClient

from nvml_simulator import Description, Machine, WorkRecord
from support.agents.agent_fixture import until
from support.control_plane.commands import ClusterCommand
from support.control_plane.waiting import Object, wait_until
from support.kubernetes_node.installation import OPERATORS
from support.node.digits import API_VERSION, Runs, await_recurrences
from support.node.killing import processes_of_container
from support.node.pipeline_pods import ENOUGH, missing_pytorch, pipeline_job, prepare_namespace, write_bytecode
from support.node.policy_changes import PolicyChanges
from support.node.waits import SLOWEST_SECONDS, attempt_of
from wattloop_planner.frequency.files.archive import PlanArchive, read_archive

# tests/integrations/test_pipeline_launch.py trains the same pipeline in two launchers; here they are pods.
pytestmark = [pytest.mark.exhaustive, pytest.mark.skipif(missing_pytorch() is not None, reason=missing_pytorch() or "")]

NAMESPACE = "pipelines"
JOB = "pipeline-two-nodes"
RANKS, KILLED_RANK = 4, 3
INSTRUCTIONS, PLANNED_ITERATIONS = 8, 4
PLAN_SECONDS = 400.0
NANOSECOND = 1e-9
MAX_MEGAHERTZ, MIN_MEGAHERTZ = 1410, 1380
# Three clocks of an A100, so that a profile takes a quarter of a minute.
POLICY = {
    "apiVersion": API_VERSION,
    "kind": "GPUPowerPolicy",
    "metadata": {"name": "three-clocks"},
    "spec": {"graphicsClock": {"minMegahertz": MIN_MEGAHERTZ}},
}


@dataclass(frozen=True)
class Attempt:
    """What one attempt left.

    Attributes:
        recurrence: The attempt when it had ended.
        plan: The FrequencyPlan when it showed what the first attempt realised.
        works: The works of each rank's GPU in execution order.
        after: The GPUs after its end.
    """

    recurrence: Object
    plan: Object
    works: list[tuple[WorkRecord, ...]]
    after: Description

    @property
    def clocks(self) -> list[list[int]]:
        """The clock of each instruction of each rank."""
        return [[work.graphics_clock_megahertz for work in works] for works in self.works]

    @property
    def iterations(self) -> list[list[list[int]]]:
        """The clocks of each complete iteration, by rank."""
        count = min(map(len, self.works)) // INSTRUCTIONS
        return [
            [clocks[number * INSTRUCTIONS : (number + 1) * INSTRUCTIONS] for clocks in self.clocks]
            for number in range(count)
        ]

    @property
    def archive(self) -> PlanArchive:
        """The plans of the FrequencyPlan."""
        return read_archive(base64.b64decode(self.plan["spec"]["archive"]))

    @property
    def planned_clocks(self) -> list[list[int]]:
        """The clock of each instruction of an iteration under the chosen plan, by rank."""
        plans, seconds = self.archive.realised, float(self.plan["status"]["plannedSeconds"])
        point = min(range(len(plans)), key=lambda number: abs(plans[number].time_seconds - seconds))
        return [list(self.archive.stage_clocks(point, stage)) for stage in range(RANKS)]

    def condition(self, kind: str) -> Object:
        """A condition of the attempt; empty if it has none of this type."""
        found = [each for each in self.recurrence["status"]["conditions"] if each["type"] == kind]
        return found[0] if found else {}


@pytest.fixture(scope="module")
def attempts(kubectl: ClusterCommand, cluster: DynamicClient, gpus: Machine) -> Iterator[tuple[Attempt, Attempt]]:
    """The attempt that is killed under its plan, and the next one."""
    write_bytecode()
    enough = gpus.path.parent / ENOUGH
    enough.unlink(missing_ok=True)
    prepare_namespace(kubectl, NAMESPACE)
    policies = PolicyChanges(kubectl)
    kubectl.apply(POLICY)
    try:
        policies.await_next()
        objective = {"target": {"metric": "loss", "direction": "Minimize", "threshold": "1000000"}}
        kubectl.apply(pipeline_job(objective=objective), namespace=NAMESPACE)
        begin = times(gpus)
        Runs(kubectl, cluster, JOB, NAMESPACE).ask("run-0")
        await_mode(cluster, 0, "Profile")
        operators = "--selector=app.kubernetes.io/component=operator"
        kubectl("delete", "pods", operators, "--wait=false", namespace=OPERATORS)
        plan = await_compared(cluster, 0)
        ranks = ranks_in_pods(kubectl, gpus)
        os.kill(ranks[KILLED_RANK].process, signal.SIGKILL)
        first = attempt(cluster, gpus, 0, plan, ranks, begin)
        begin = times(gpus)
        until(lambda: has_planned_iterations(gpus, begin), "works under the plan", seconds=PLAN_SECONDS)
        ranks = ranks_in_pods(kubectl, gpus)
        enough.touch()
        yield first, attempt(cluster, gpus, 1, plan, ranks, begin)
    finally:
        enough.unlink(missing_ok=True)
        kubectl("delete", "rtj", JOB, "--ignore-not-found", "--wait", namespace=NAMESPACE)
        kubectl("delete", "gpupowerpolicy", POLICY["metadata"]["name"], "--ignore-not-found")
        policies.await_next()


@dataclass(frozen=True)
class Rank:
    """A process of the training, and its GPU."""

    process: int
    gpu: str


def ranks_in_pods(kubectl: ClusterCommand, gpus: Machine) -> dict[int, Rank]:
    """The ranks that run, by their number."""
    found: dict[int, Rank] = {}
    for pod in kubectl.json("get", "pods", namespace=NAMESPACE)["items"]:
        for status in pod["status"].get("containerStatuses", []):
            for process in processes_of_container(pod["metadata"]["uid"], status["containerID"]):
                # A process can end meanwhile.
                with contextlib.suppress(OSError):
                    lines = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
                    variables = dict(line.decode().split("=", 1) for line in lines if b"=" in line)
                    # torchrun itself, which has the rank of its pod, has none of these.
                    if "LOCAL_RANK" in variables:
                        uuids = sorted(variables["NVIDIA_VISIBLE_DEVICES"].split(","), key=gpus.index)
                        found[int(variables["RANK"])] = Rank(process, uuids[int(variables["LOCAL_RANK"])])
    assert sorted(found) == list(range(RANKS))
    return found


def times(gpus: Machine) -> dict[str, float]:
    """The time of each GPU's own clock."""
    return {gpu.uuid: gpus.clock_seconds(gpu.uuid) for gpu in gpus.describe().gpus}


def attempt(
    cluster: DynamicClient, gpus: Machine, number: int, plan: Object, ranks: dict[int, Rank], begin: dict[str, float]
) -> Attempt:
    """Wait until an attempt has ended; its works are those since the begin."""
    recurrence = await_end(cluster, number)
    uuids = [ranks[rank].gpu for rank in range(RANKS)]
    return Attempt(recurrence, plan, [works_since(gpus, uuid, begin) for uuid in uuids], gpus.describe())


def works_since(gpus: Machine, uuid: str, begin: dict[str, float]) -> tuple[WorkRecord, ...]:
    return tuple(work for work in gpus.work_records(uuid) if work.end_seconds > begin[uuid] + NANOSECOND)


def has_planned_iterations(gpus: Machine, begin: dict[str, float]) -> bool:
    """Whether a GPU has worked so often at lower clocks, which a plan may give to some GPUs alone."""
    works = [works_since(gpus, uuid, begin) for uuid in begin]
    lowered = max(sum(work.graphics_clock_megahertz < MAX_MEGAHERTZ for work in each) for each in works)
    return lowered >= PLANNED_ITERATIONS * INSTRUCTIONS


def await_mode(cluster: DynamicClient, number: int, mode: str) -> Object:
    """Wait until an attempt's pipeline measures or runs a plan, as its status says."""

    def found(recurrences: list[Object]) -> Object | None:
        recurrence = attempt_of(recurrences, JOB, 0, number)
        if recurrence is not None and recurrence.get("status", {}).get("frequencyPlan", {}).get("mode") == mode:
            return recurrence
        return None

    what = f"attempt {number} to have the mode {mode}"
    return await_recurrences(cluster, NAMESPACE, found, what=what, timeout_seconds=PLAN_SECONDS)


def await_compared(cluster: DynamicClient, number: int) -> Object:
    """Wait until the plan of an attempt shows what it saves compared with free clocks; return the plan."""
    name = await_mode(cluster, number, "Plan")["metadata"]["name"]

    def found(plans: list[Object]) -> Object | None:
        for plan in plans:
            status = plan.get("status", {})
            if status.get("recurrence") == name and "savingPercent" in status:
                return plan
        return None

    return wait_until(
        cluster,
        (API_VERSION, "FrequencyPlan"),
        found,
        f"the plan of {name} to be compared with free clocks",
        namespace=NAMESPACE,
        timeout_seconds=PLAN_SECONDS,
    )


def await_end(cluster: DynamicClient, number: int) -> Object:
    def found(recurrences: list[Object]) -> Object | None:
        recurrence = attempt_of(recurrences, JOB, 0, number)
        return recurrence if recurrence and "completionTime" in recurrence.get("status", {}) else None

    what = f"the end of attempt {number}"
    return await_recurrences(cluster, NAMESPACE, found, what=what, timeout_seconds=SLOWEST_SECONDS)


def test_the_operators_plan_saves_energy_in_the_same_time(attempts: tuple[Attempt, Attempt]) -> None:
    status = attempts[0].plan["status"]
    (planned,) = (each for each in status["conditions"] if each["type"] == "Planned")
    assert int(planned["message"].split()[0]) >= 2, "it has several plans"
    assert float(status["plannedSavingPercent"]) > 1
    assert float(status["plannedSlowdownPercent"]) <= 0.1
    assert "savingPercent" in status
    recurrence = attempts[0].recurrence["status"]
    assert recurrence["frequencyPlan"]["name"] == attempts[0].plan["metadata"]["name"]


def test_instructions_are_measured_once_although_the_operator_restarts_and_then_run_at_their_planned_clocks(
    attempts: tuple[Attempt, Attempt],
) -> None:
    killed, _ = attempts
    at_one_clock = [[[clock] * INSTRUCTIONS] * RANKS for clock in (MAX_MEGAHERTZ, MAX_MEGAHERTZ - 15, MIN_MEGAHERTZ)]
    phases = [clocks for clocks, _ in itertools.groupby(killed.iterations)]
    assert phases[:5] == [*at_one_clock, at_one_clock[0], killed.planned_clocks]
    # Under the plan, blocks of iterations run at free clocks.
    assert_alternate(phases[4:], killed.planned_clocks, at_one_clock[0])
    # The last iteration, in which the rank was killed.
    for row, free, clocks in zip(killed.planned_clocks, at_one_clock[0], killed.clocks, strict=True):
        rest = clocks[len(killed.iterations) * INSTRUCTIONS :]
        assert rest in ((row * 2)[: len(rest)], (free * 2)[: len(rest)])


def assert_alternate(phases: list[list[list[int]]], planned: list[list[int]], free: list[list[int]]) -> None:
    """Iterations under the plan and at free clocks alternate, on all ranks at the same iterations."""
    assert phases == ([planned, free] * len(phases))[: len(phases)]


def per_iteration(each: Attempt, first: int, last: int) -> tuple[float, float]:
    """Seconds and joules of an iteration, from the begin of the first one to that of the last one, by the GPUs."""
    spans = [(works[first * INSTRUCTIONS], works[last * INSTRUCTIONS]) for works in each.works]
    seconds = max(end.begin_seconds - begin.begin_seconds for begin, end in spans)
    microjoules = sum(end.begin_microjoules - begin.begin_microjoules for begin, end in spans)
    return seconds / (last - first), microjoules / 1e6 / (last - first)


def runs_of(each: Attempt, clocks: list[list[int]]) -> list[tuple[int, int]]:
    """The first and the last of consecutive iterations with these clocks; the last run may be cut off."""
    places = itertools.groupby(range(len(each.iterations)), lambda number: each.iterations[number] == clocks)
    found = [list(numbers) for same, numbers in places if same]
    return [(numbers[0], numbers[-1]) for numbers in found]


def mean_of(each: Attempt, runs: list[tuple[int, int]]) -> tuple[float, float]:
    """Mean seconds and joules of an iteration, from the second one of each run on: the first waits for others."""
    parts = [(last - first - 1, per_iteration(each, first + 1, last)) for first, last in runs if last >= first + 2]
    count = sum(iterations for iterations, _ in parts)
    seconds, joules = (sum(iterations * part[column] for iterations, part in parts) / count for column in (0, 1))
    return seconds, joules


def under_the_plan(each: Attempt) -> tuple[float, float]:
    """Seconds and joules of an iteration under the plan."""
    return mean_of(each, runs_of(each, each.planned_clocks))


def test_an_iteration_takes_the_planned_time_and_energy_by_the_gpus_own_records(
    attempts: tuple[Attempt, Attempt],
) -> None:
    for each in attempts:
        seconds, joules = under_the_plan(each)
        status = each.plan["status"]
        for figures in ("realised", "planned"):
            assert seconds == pytest.approx(float(status[f"{figures}Seconds"]), rel=1e-3)
            assert joules == pytest.approx(float(status[f"{figures}Joules"]), rel=2e-3)


def test_the_reported_saving_has_that_of_the_gpus_own_records_in_its_interval(
    attempts: tuple[Attempt, Attempt],
) -> None:
    killed, _ = attempts
    planned = runs_of(killed, killed.planned_clocks)
    free = [[MAX_MEGAHERTZ] * INSTRUCTIONS] * RANKS
    # Those between iterations under the plan, and not those of the profile.
    between = [(first, last) for first, last in runs_of(killed, free) if planned[0][1] < first < planned[-1][0]]
    assert len(between) >= 4
    free_seconds, free_joules = mean_of(killed, between)
    seconds, joules = under_the_plan(killed)
    status = killed.plan["status"]
    for figure, exact in (
        ("saving", 100 * (1 - joules / free_joules)),
        ("slowdown", 100 * (seconds / free_seconds - 1)),
    ):
        error = float(status[f"{figure}ErrorPercent"])
        assert abs(float(status[f"{figure}Percent"]) - exact) <= 1.96 * error + 0.1


def test_a_killed_rank_is_named_with_its_pod_and_clocks_are_free(attempts: tuple[Attempt, Attempt]) -> None:
    killed, _ = attempts
    assert killed.recurrence["status"]["result"] == "Crashed"
    named = re.fullmatch(
        r"rank ([\d, or]+) of 4 (?:was killed|(?:failed first: they )?ended without a report); "
        r"pod (\S+) of index \d on node \S+ failed first",
        killed.condition("RanksHealthy")["message"],
    )
    assert named is not None, killed.condition("RanksHealthy")
    # torchrun names the killed rank in its output. It also ends the other rank of its pod, which may not report either.
    assert str(KILLED_RANK) in re.findall(r"\d", named[1])
    assert named[2].startswith(killed.recurrence["metadata"]["name"])
    assert [gpu.locked_graphics_clocks_megahertz for gpu in killed.after.gpus] == [None] * RANKS


def test_the_next_attempt_runs_the_plan_without_measuring_and_frees_the_clocks(
    attempts: tuple[Attempt, Attempt],
) -> None:
    _, following = attempts
    assert following.recurrence["status"]["result"] == "Reached"
    phases = [clocks for clocks, _ in itertools.groupby(following.iterations)]
    free = [[MAX_MEGAHERTZ] * INSTRUCTIONS] * RANKS
    assert phases[:2] == [free, following.planned_clocks]
    assert_alternate(phases[1:], following.planned_clocks, free)
    assert [gpu.locked_graphics_clocks_megahertz for gpu in following.after.gpus] == [None] * RANKS
