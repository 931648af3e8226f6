"""An uninstallation during a training restores the GPUs and keeps what was learned; a new installation continues."""

from dataclasses import dataclass

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from nvml_simulator import Machine
from support.control_plane.commands import ClusterCommand
from support.control_plane.waiting import Object
from support.kubernetes_node.installation import AGENTS, OPERATORS, WITHOUT_SOCKETS, install, uninstall
from support.kubernetes_node.node import About
from support.kubernetes_node.users import make_editor
from support.node.digits import Runs
from support.node.paced import paced_job, put_scripts
from support.node.waits import await_epoch, await_status, is_counted

NAMESPACE = "kept"
HELD_WATTS = 250
FOUND_WATTS = 400.0


@dataclass(frozen=True)
class Seen:
    """The observed state.

    Attributes:
        held: Power limits of the GPUs while the training ran, before the release was uninstalled.
        given_back: When it was uninstalled.
        left: Objects in the release's namespaces when its pods had ended.
        deleted: kubectl's output for a recurrence that was deleted then.
        history: The names of the recurrences before, then, and after the release was installed again.
        after: The recurrence that was running all that time, when it had ended.
        next: The one that was asked for afterwards.
        status: The job's status in the end.
    """

    held: set[float]
    given_back: set[float]
    left: set[str]
    deleted: str
    history: tuple[list[str], list[str], list[str]]
    after: Object
    next: Object
    status: Object


@pytest.fixture(scope="module")
def seen(node: About, kubectl: ClusterCommand, core: client.CoreV1Api, cluster: DynamicClient, gpus: Machine) -> Seen:
    user = kubectl.as_user(make_editor(node, kubectl, core, NAMESPACE))
    put_scripts(user, NAMESPACE)
    power = {"mode": "Fixed", "watts": HELD_WATTS}
    user.apply(paced_job("other", epoch_seconds=0.1, power=power), namespace=NAMESPACE)
    user.apply(paced_job("kept", epoch_seconds=3.0, power=power), namespace=NAMESPACE)
    other = Runs(user, cluster, "other", NAMESPACE).run(0)
    kept = Runs(user, cluster, "kept", NAMESPACE)
    kept.ask("run-0")
    await_epoch(cluster, NAMESPACE, "kept")
    before, held = names(kubectl), limits(gpus)
    # With the release go the users' roles, until it is installed again.
    uninstall(node)
    # Helm does not wait for pods, and the training goes on.
    left = {name for each in (AGENTS, OPERATORS) for name in what_is_left(kubectl, each)}
    given_back = limits(gpus)
    uninstalled = names(kubectl)
    deleted = kubectl("delete", "trec", other["metadata"]["name"], "--timeout=150s", namespace=NAMESPACE)
    # As the next module needs it, which saves an upgrade.
    install(node, WITHOUT_SOCKETS)
    after = kept.await_recurrence(0)
    history = (before, uninstalled, names(kubectl))
    following = kept.run(1)
    status = await_status(
        cluster, NAMESPACE, "kept", lambda status: is_counted(status, 2), "to have counted two recurrences"
    )
    return Seen(held, given_back, left, deleted, history, after, following, status)


def limits(gpus: Machine) -> set[float]:
    return {gpu.power_limit_watts for gpu in gpus.describe().gpus}


def what_is_left(kubectl: ClusterCommand, namespace: str) -> list[str]:
    kubectl("wait", "--for=delete", "pods", "--all", "--timeout=150s", namespace=namespace)
    return kubectl("get", "all,secrets,leases,persistentvolumeclaims", "--output=name", namespace=namespace).split()


def names(kubectl: ClusterCommand) -> list[str]:
    return kubectl("get", "trec", "--output=name", namespace=NAMESPACE).split()


def test_the_gpus_are_restored_before_the_agent_ends(seen: Seen) -> None:
    assert seen.held == {HELD_WATTS, FOUND_WATTS}
    assert seen.given_back == {FOUND_WATTS}


def test_only_the_state_of_a_release_remains(seen: Seen) -> None:
    assert seen.left == {
        "persistentvolumeclaim/wattloop-database",
        "secret/wattloop-reporting-authority",
        "lease.coordination.k8s.io/wattloop-operator",
    }


def test_no_finalizer_blocks_a_deletion_by_a_user(seen: Seen) -> None:
    assert "deleted" in seen.deleted


def test_definitions_and_history_are_kept(seen: Seen) -> None:
    before, uninstalled, _ = seen.history
    assert uninstalled == before


def test_a_new_installation_continues_from_the_old_state(seen: Seen) -> None:
    assert seen.after["status"]["result"] == "Reached", seen.after["status"]
    assert seen.after["spec"]["attempt"] == 0
    assert seen.next["spec"]["index"] == 1
    assert seen.next["status"]["result"] == "Reached"
    assert seen.status["totals"]["recurrences"] == 2
    assert sum(arm.get("observations", 0) for arm in seen.status["arms"]) >= 2
