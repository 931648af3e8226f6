"""The whole way: Helm installs, a user applies the example, recurrences end, and the batch size gets better.

The user has Kubernetes' role `edit` in one namespace, and nothing else.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from nvml_simulator import Description, Machine
from support.control_plane.commands import ClusterCommand, CommandError
from support.control_plane.waiting import Object
from support.kubernetes_node.installation import AGENTS, OPERATORS
from support.kubernetes_node.node import About
from support.kubernetes_node.users import make_editor
from support.node.digits import MANIFEST, Runs
from support.node.limit_observer import LimitObserver
from support.node.waits import await_status, is_counted, saving_of

NAMESPACE = "team"
RECURRENCES = 8
# Of 3,000 simulated jobs like this one none took more, and 99.6 % took the eight; docs/internals/bandit.md.
MAX_RECURRENCES = 30
DEFAULT_BATCH_SIZE = 1024
STATUS = ("--type=merge", "--subresource=status")


@dataclass(frozen=True)
class Run:
    """One recurrence, and the truth about the GPUs around it."""

    attempts: list[Object]
    before: Description
    after: Description
    worked_at: dict[str, dict[float, float]]

    @property
    def recurrence(self) -> Object:
        """The last attempt."""
        return self.attempts[-1]

    @property
    def energy_joules(self) -> float:
        """The energy of all GPUs in the simulator; only this job uses them."""
        pairs = zip(self.before.gpus, self.after.gpus, strict=True)
        return sum(after.energy_microjoules - before.energy_microjoules for before, after in pairs) / 1e6


@pytest.fixture(scope="module")
def user(node: About, kubectl: ClusterCommand, core: client.CoreV1Api) -> ClusterCommand:
    return kubectl.as_user(make_editor(node, kubectl, core, NAMESPACE))


@pytest.fixture(scope="module")
def runs(user: ClusterCommand, cluster: DynamicClient) -> Runs:
    user("apply", f"--filename={MANIFEST}")
    # Its nightly run comes twelve hours from now, not in between those that are asked for here.
    hour = (datetime.now(ZoneInfo("Europe/Paris")).hour + 12) % 24
    later = json.dumps({"spec": {"schedule": f"0 {hour} * * *"}})
    user("patch", "rtj", "digits", "--type=merge", f"--patch={later}")
    return Runs(user, cluster, "digits", NAMESPACE)


@pytest.fixture(scope="module")
def ended(runs: Runs, gpus: Machine, cluster: DynamicClient) -> list[Run]:
    """The runs that the user requests in sequence, until learning shows.

    The cost of a run depends on the job's uid, so the number of runs until the batch size moves differs.
    """
    found: list[Run] = []
    for index in range(MAX_RECURRENCES):
        before = gpus.describe()
        with LimitObserver(gpus) as seen:
            runs.run(index)
        attempts = [each for each in runs.recurrences() if each["spec"]["index"] == index]
        worked_at = {uuid: dict(limits) for uuid, limits in seen.worked_at.items()}
        found.append(Run(attempts, before, gpus.describe(), worked_at))
        status = await_status(
            cluster, NAMESPACE, "digits", lambda status: is_counted(status, len(found)), "to have counted its last run"
        )
        if len(found) >= RECURRENCES and has_moved(status, found) and with_decided_limit(found):
            break
    return found


def has_moved(status: Object, ended: list[Run]) -> bool:
    """Whether another batch size than the default is believed the best, and the last run was cheaper than the first."""
    first, last = (float(ended[index].recurrence["status"]["costJoules"]) for index in (0, -1))
    saved = float(saving_of(status, "LatestCost").get("value", 0))
    return bool(status["best"]["batchSize"] != DEFAULT_BATCH_SIZE and last < first and saved > 0)


def reported(ended: list[Run]) -> str:
    """A line for each attempt: its settings, the reason, and its outcome."""
    return "\n".join(
        f"{spec['index']}.{spec['attempt']} batch size {spec['batchSize']}: {status['result']}, "
        f"{status.get('cost', {}).get('joules')} J ({spec['decision']['reason']})"
        for spec, status in ((each["spec"], each["status"]) for run in ended for each in run.attempts)
    )


def with_decided_limit(ended: list[Run]) -> list[Run]:
    """Those of one attempt whose power limit was decided before they began, and that were seen to work.

    On a busy machine, the whole work of a run may lie between two looks of different limits.
    """
    of_one = [run for run in ended if len(run.attempts) == 1 and run.worked_at]
    return [run for run in of_one if "powerLimitWatts" in run.recurrence["spec"]]


def test_every_recurrence_reaches_its_target_and_shows_its_cost(ended: list[Run]) -> None:
    for run in ended:
        status = run.recurrence["status"]
        assert status["result"] == "Reached", status
        assert float(status["costJoules"]) > 0
        assert float(status["usage"]["gpuEnergyJoules"]) > 0
        assert float(status["usage"]["durationSeconds"]) > 0
        assert status["usage"]["gpuProduct"] == "NVIDIA A100-SXM4-80GB"


def test_the_batch_size_moves_to_a_better_one(runs: Runs, ended: list[Run]) -> None:
    assert ended[0].recurrence["spec"]["batchSize"] == DEFAULT_BATCH_SIZE
    assert has_moved(runs.status(), ended), f"not even after {len(ended)} runs:\n{reported(ended)}"


def test_the_energy_of_a_recurrence_is_that_of_its_gpu(ended: list[Run]) -> None:
    for run in ended:
        usages = [each["status"]["usage"] for each in run.attempts]
        assert {usage["attribution"] for usage in usages} == {"Exclusive"}
        # The counter steps every 100 ms, so each measurement is within one step of full power at either end.
        within = sum(max(2 * 0.1 * 400.0, float(usage.get("uncertaintyJoules", 0))) for usage in usages)
        reported = sum(float(usage["gpuEnergyJoules"]) for usage in usages)
        assert reported == pytest.approx(run.energy_joules, abs=within)


def test_a_gpu_works_at_the_decided_limit_and_is_restored_afterwards(ended: list[Run]) -> None:
    decided = with_decided_limit(ended)
    assert decided, "no recurrence had a limit decided before it began"
    for run in ended:
        limits = [gpu.power_limit_watts for gpu in run.after.gpus]
        assert limits == [gpu.power_limit_watts for gpu in run.before.gpus] == [400.0] * len(limits)
        assert len(run.worked_at) <= len(run.attempts), "a pod with one GPU worked on others"
    for run in decided:
        (worked_at,) = run.worked_at.values()
        assert set(worked_at) == {float(run.recurrence["spec"]["powerLimitWatts"])}


@pytest.mark.usefixtures("ended")
def test_the_users_output_is_readable(user: ClusterCommand, runs: Runs) -> None:
    table = user("get", "rtj,trec")
    jobs, recurrences = table.strip().split("\n\n")
    assert jobs.splitlines()[0].split() == ["NAME", "STATE", "FAILURE", "COST", "SAVED", "NEXT", "RUN"]
    assert jobs.splitlines()[1].split()[1] == "Waiting"
    assert "INDEX" in recurrences.splitlines()[0]
    assert len(recurrences.splitlines()) == 1 + len(runs.recurrences()) > RECURRENCES
    listed = [int(row.split()[1]) for row in recurrences.splitlines()[1:]]
    assert listed == sorted(listed), "not by index"
    (first, *_) = (each["metadata"]["name"] for each in runs.recurrences())
    events = user("describe", "trec", first).partition("Events:")[2]
    assert {"RecurrenceStarted", "RecurrenceReached"} <= set(events.split())
    described = user("describe", "rtj", "digits")
    assert "Mean Cost Joules" in described
    print(table)


@pytest.mark.parametrize(
    "arguments",
    [
        ["get", "gpupowerpolicies.wattloop.dev"],
        ["get", "rtj", "--all-namespaces"],
        ["get", "pods", f"--namespace={AGENTS}"],
        ["get", "secrets", f"--namespace={OPERATORS}"],
        ["create", "token", "wattloop-operator", f"--namespace={OPERATORS}"],
        ["label", "trec", "{recurrence}", "mine=yes"],
        ["patch", "trec", "{recurrence}", *STATUS, '--patch={"status": {"result": "Crashed"}}'],
        ["patch", "rtj", "digits", *STATUS, '--patch={"status": {"best": {"batchSize": 8}}}'],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_the_role_edit_in_one_namespace_gives_no_other_rights(
    arguments: list[str], user: ClusterCommand, ended: list[Run]
) -> None:
    name = ended[-1].recurrence["metadata"]["name"]
    with pytest.raises(CommandError, match=r"[Ff]orbidden"):
        user(*[each.replace("{recurrence}", name) for each in arguments])
