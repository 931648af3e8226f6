"""In a labelled namespace pods mount the agent's socket, and otherwise keep to Pod Security baseline.

The API server's own Pod Security judges the same pods in a namespace that enforces baseline: both must agree on every
pod without a hostPath.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from support.chart.admission import await_refusal, pod_refusal, refusal
from support.control_plane.chart import Release
from support.control_plane.objects import SERVICE_ACCOUNT
from support.control_plane.waiting import wait_until

LABELS = {"pod-security.kubernetes.io/enforce": "privileged", "wattloop.dev/agent-socket": "baseline"}
POLICY = "wattloop-agent-socket"
FOLDER = "/run/wattloop"
SOCKET = {"name": "socket", "hostPath": {"path": FOLDER, "type": "DirectoryOrCreate"}}
MOUNT = {"name": "socket", "mountPath": FOLDER, "readOnly": True}
PROBE_HOST = {"host": "169.254.169.254", "port": 80}
HOST = "field host of probes and lifecycle hooks"
EXEC = {"exec": {"command": ["true"]}}

# Of pods' specs: the words of the refusal, and the fields that are refused.
OF_PODS = [
    ("hostNetwork, hostPID and hostIPC", {"hostNetwork": True}),
    ("hostNetwork, hostPID and hostIPC", {"hostPID": True}),
    ("hostNetwork, hostPID and hostIPC", {"hostIPC": True}),
    ("AppArmor", {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}),
    ("SELinux", {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}),
    ("SELinux", {"securityContext": {"seLinuxOptions": {"user": "system_u"}}}),
    ("SELinux", {"securityContext": {"seLinuxOptions": {"role": "system_r"}}}),
    ("seccomp", {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
    ("sysctls", {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}),
    (
        "hostProcess",
        {"hostNetwork": True, "securityContext": {"windowsOptions": {"hostProcess": True, "runAsUserName": "x"}}},
    ),
]
# Of containers, of init containers as of others.
OF_CONTAINERS = [
    ("privileged containers", {"securityContext": {"privileged": True}}),
    ("capabilities", {"securityContext": {"capabilities": {"add": ["CHOWN", "SYS_ADMIN"]}}}),
    ("capabilities", {"securityContext": {"capabilities": {"add": ["ALL"]}}}),
    ("hostPort", {"ports": [{"containerPort": 80, "hostPort": 80}]}),
    ("AppArmor", {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}),
    ("SELinux", {"securityContext": {"seLinuxOptions": {"type": "unconfined_t"}}}),
    ("SELinux", {"securityContext": {"seLinuxOptions": {"user": "root"}}}),
    ("SELinux", {"securityContext": {"seLinuxOptions": {"role": "sysadm_r"}}}),
    ("seccomp", {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
    (HOST, {"livenessProbe": {"httpGet": PROBE_HOST}}),
    (HOST, {"readinessProbe": {"tcpSocket": PROBE_HOST}}),
    (HOST, {"startupProbe": {"httpGet": PROBE_HOST}}),
    (HOST, {"lifecycle": {"postStart": {"httpGet": PROBE_HOST}}}),
    (HOST, {"lifecycle": {"preStop": {"tcpSocket": PROBE_HOST}}}),
]
ADMITTED_OF_PODS: list[dict[str, Any]] = [
    {},
    {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}, "seccompProfile": {"type": "RuntimeDefault"}}},
    {"securityContext": {"seLinuxOptions": {"type": "container_t", "level": "s0:c1,c2"}}},
    {"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}], "runAsUser": 0}},
    {"securityContext": {"windowsOptions": {"hostProcess": False}}},
    {"hostNetwork": False, "hostUsers": False},
]
ADMITTED_OF_CONTAINERS: list[dict[str, Any]] = [
    {},
    {"securityContext": {"privileged": False, "procMount": "Default", "runAsUser": 0}},
    {"securityContext": {"capabilities": {"add": ["NET_BIND_SERVICE", "SETUID"], "drop": ["SYS_ADMIN"]}}},
    {"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "a.json"}}},
    {"ports": [{"containerPort": 80, "hostPort": 0}]},
    {"livenessProbe": {"httpGet": {"port": 80}}, "readinessProbe": {"tcpSocket": {"port": 80}}, "startupProbe": EXEC},
    {"lifecycle": {"preStop": {"httpGet": {"port": 80}}, "postStart": EXEC}},
]
ANNOTATION = "container.apparmor.security.beta.kubernetes.io/train"


def pod(
    of_pod: Mapping[str, Any] | None = None,
    of_train: Mapping[str, Any] | None = None,
    of_init: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    # An init container that goes on beside the others may have probes and hooks.
    init = {"name": "first", "image": "x:1", "restartPolicy": "Always", **(of_init or {})}
    train = {"name": "train", "image": "x:1", **(of_train or {})}
    spec: dict[str, Any] = {"containers": [train], "initContainers": [init], **(of_pod or {})}
    return copy.deepcopy(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "probe", "annotations": dict(annotations or {})},
            "spec": spec,
        }
    )


def with_socket(volume: Mapping[str, Any] = SOCKET, mount: Mapping[str, Any] = MOUNT) -> dict[str, Any]:
    return pod({"volumes": [volume]}, {"volumeMounts": [mount]})


@pytest.fixture(scope="module")
def two(core: client.CoreV1Api, cluster: DynamicClient, release: Release) -> Iterator[tuple[str, str]]:
    """A namespace in which the policy holds, and one that enforces Pod Security baseline."""
    made = []
    for labels in (LABELS, {"pod-security.kubernetes.io/enforce": "baseline"}):
        metadata = client.V1ObjectMeta(generate_name="socket-", labels=labels)
        name = str(core.create_namespace(client.V1Namespace(metadata=metadata)).metadata.name)
        wait_until(
            cluster,
            SERVICE_ACCOUNT,
            bool,
            f"the default service account of {name}",
            namespace=name,
            field_selector="metadata.name=default",
        )
        made.append(name)
    await_refusal(lambda: pod_refusal(core, made[0], pod({"hostPID": True})), "hostPID")
    yield made[0], made[1]
    for name in made:
        core.delete_namespace(name)


@pytest.mark.parametrize(("control", "fields"), OF_PODS)
def test_a_pod_that_baseline_rejects_is_rejected(
    control: str, fields: dict[str, Any], two: tuple[str, str], core: client.CoreV1Api
) -> None:
    for volumes in ({}, {"volumes": [SOCKET]}):
        message = pod_refusal(core, two[0], pod(fields | volumes))
        assert POLICY in message
        assert control in message or "hostNetwork" in fields
    assert "violates PodSecurity" in pod_refusal(core, two[1], pod(fields))


@pytest.mark.parametrize("where", ["of_train", "of_init"])
@pytest.mark.parametrize(("message", "fields"), OF_CONTAINERS)
def test_a_container_that_baseline_rejects_is_rejected(
    message: str, fields: dict[str, Any], where: str, two: tuple[str, str], core: client.CoreV1Api
) -> None:
    refused = pod(**{where: fields})  # type: ignore[arg-type]
    assert message in pod_refusal(core, two[0], refused)
    assert "violates PodSecurity" in pod_refusal(core, two[1], refused)


def test_an_unmasked_proc_is_rejected_also_in_a_user_namespace(two: tuple[str, str], core: client.CoreV1Api) -> None:
    unmasked = pod({"hostUsers": False}, {"securityContext": {"procMount": "Unmasked"}})
    assert "procMount" in pod_refusal(core, two[0], unmasked)


def test_the_annotation_of_app_armor_is_rejected(two: tuple[str, str], core: client.CoreV1Api) -> None:
    unconfined = pod(annotations={ANNOTATION: "unconfined"})
    assert "AppArmor" in pod_refusal(core, two[0], unconfined)
    assert "violates PodSecurity" in pod_refusal(core, two[1], unconfined)
    assert pod_refusal(core, two[0], pod(annotations={ANNOTATION: "runtime/default"})) == ""


@pytest.mark.parametrize(
    "volume", [SOCKET, {"name": "socket", "hostPath": {"path": f"{FOLDER}/", "type": "Directory"}}], ids=str
)
def test_the_sockets_folder_is_admitted_if_read_only(
    volume: dict[str, Any], two: tuple[str, str], core: client.CoreV1Api
) -> None:
    assert pod_refusal(core, two[0], with_socket(volume)) == ""
    assert "hostPath volumes" in pod_refusal(core, two[1], with_socket(volume))


@pytest.mark.parametrize(
    "host",
    [
        {"path": "/"},
        {"path": "/run"},
        {"path": "/run/wattloop/agent"},
        {"path": "/run/wattloop-gpus"},
        {"path": "/run//wattloop/"},
        {"path": FOLDER, "type": "Socket"},
        {"path": FOLDER, "type": "FileOrCreate"},
        {"path": FOLDER, "type": "BlockDevice"},
    ],
    ids=str,
)
def test_no_other_hostpath_is_admitted(host: dict[str, str], two: tuple[str, str], core: client.CoreV1Api) -> None:
    volume = {"name": "socket", "hostPath": host}
    assert "the only hostPath volume admitted" in pod_refusal(core, two[0], with_socket(volume))
    # Beside the admitted one, and mounted by no container.
    assert "the only hostPath" in pod_refusal(core, two[0], pod({"volumes": [SOCKET, volume | {"name": "other"}]}))


@pytest.mark.parametrize("where", ["of_train", "of_init"])
@pytest.mark.parametrize(
    "mount",
    [
        {"name": "socket", "mountPath": FOLDER},
        MOUNT | {"readOnly": False},
        MOUNT | {"subPath": "agent.sock"},
        MOUNT | {"subPathExpr": "$(X)"},
    ],
    ids=str,
)
def test_no_container_mounts_the_socket_in_another_way(
    mount: dict[str, Any], where: str, two: tuple[str, str], core: client.CoreV1Api
) -> None:
    fields = {where: {"volumeMounts": [MOUNT | {"mountPath": "/also"}, mount], "env": [{"name": "X", "value": "y"}]}}
    refused = pod({"volumes": [SOCKET]}, **fields)  # type: ignore[arg-type]
    assert "is mounted readOnly, as a whole" in pod_refusal(core, two[0], refused)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    of_pod=st.sampled_from([fields for _, fields in OF_PODS] + ADMITTED_OF_PODS * 3),
    of_train=st.sampled_from([fields for _, fields in OF_CONTAINERS] + ADMITTED_OF_CONTAINERS * 4),
    of_init=st.sampled_from([fields for _, fields in OF_CONTAINERS] + ADMITTED_OF_CONTAINERS * 4),
)
def test_the_policy_agrees_with_pod_security_about_any_pod(
    of_pod: dict[str, Any],
    of_train: dict[str, Any],
    of_init: dict[str, Any],
    two: tuple[str, str],
    core: client.CoreV1Api,
) -> None:
    probe = pod(of_pod, of_train, of_init)
    ours, theirs = (pod_refusal(core, namespace, probe) for namespace in two)
    assert (POLICY in ours) == ("violates PodSecurity" in theirs), (ours, theirs)


@pytest.mark.parametrize("fields", ADMITTED_OF_PODS, ids=str)
def test_a_pod_that_baseline_admits_is_admitted(
    fields: dict[str, Any], two: tuple[str, str], core: client.CoreV1Api
) -> None:
    assert pod_refusal(core, two[1], pod(fields)) == ""
    assert pod_refusal(core, two[0], pod(fields)) == ""


@pytest.mark.parametrize("fields", ADMITTED_OF_CONTAINERS, ids=str)
def test_a_container_that_baseline_admits_is_admitted(
    fields: dict[str, Any], two: tuple[str, str], core: client.CoreV1Api
) -> None:
    for probe in (pod(of_train=fields), pod(of_init=fields)):
        assert pod_refusal(core, two[1], probe) == ""
        assert pod_refusal(core, two[0], probe) == ""


def test_the_same_rules_apply_to_debug_containers(two: tuple[str, str], core: client.CoreV1Api) -> None:
    running = with_socket()
    running["metadata"]["name"] = "debugged"
    core.create_namespaced_pod(two[0], running)

    def debugged(**fields: Any) -> str:
        container = {"name": "debug", "image": "x:1", **fields}
        patch = {"spec": {"ephemeralContainers": [container]}}
        return refusal(lambda: core.patch_namespaced_pod_ephemeralcontainers("debugged", two[0], patch, dry_run="All"))

    assert "privileged containers" in debugged(securityContext={"privileged": True})
    assert "capabilities" in debugged(securityContext={"capabilities": {"add": ["SYS_PTRACE"]}})
    assert "is mounted readOnly" in debugged(volumeMounts=[{"name": "socket", "mountPath": "/x"}])
    assert debugged(volumeMounts=[MOUNT]) == ""


def test_other_namespaces_are_not_affected(namespace: str, core: client.CoreV1Api) -> None:
    assert pod_refusal(core, namespace, pod({"hostPID": True})) == ""
