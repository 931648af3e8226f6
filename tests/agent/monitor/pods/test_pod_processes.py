"""The pod of a cgroup, in the forms of runtimes and drivers, and in forged ones."""

import pytest

from wattloop_agent.monitor.pods.pod_processes import NotInPodError, pod_of

UID = "0a1b2c3d-4e5f-4071-8293-a4b5c6d7e8f9"
UNDERSCORED = UID.replace("-", "_")
OTHER = "ffffffff-4e5f-4071-8293-a4b5c6d7e8f9"
CONTAINER = "c" * 64
STATIC = "0123456789abcdef0123456789abcdef"

FOUND = {
    "v2, systemd, containerd, burstable": (
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice/"
        f"cri-containerd-{CONTAINER}.scope"
    ),
    "v2, systemd, containerd, guaranteed": (
        f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{CONTAINER}.scope"
    ),
    "v2, systemd, CRI-O": (
        f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UNDERSCORED}.slice/crio-{CONTAINER}.scope"
    ),
    "v2, systemd, CRI-O, container's own cgroup": (
        f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-{CONTAINER}.scope/container"
    ),
    "v2, systemd, Docker": f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/docker-{CONTAINER}.scope",
    "v2, cgroupfs": f"0::/kubepods/burstable/pod{UID}/{CONTAINER}",
    "v2, cgroupfs, guaranteed": f"0::/kubepods/pod{UID}/{CONTAINER}",
    "v2, cgroupfs, CRI-O": f"0::/kubepods/besteffort/pod{UID}/crio-{CONTAINER}",
    "v2, seen from another cgroup namespace": (
        f"0::/../../kubepods-besteffort.slice/kubepods-besteffort-pod{UNDERSCORED}.slice/cri-containerd-{CONTAINER}.scope"
    ),
    "v2, a node in a container": (
        f"0::/system.slice/docker-{'d' * 64}.scope/kubelet.slice/kubelet-kubepods.slice/"
        f"kubelet-kubepods-pod{UNDERSCORED}.slice/cri-containerd-{CONTAINER}.scope"
    ),
    "v1, cgroupfs": "\n".join(
        f"{number}:{controller}:/kubepods/burstable/pod{UID}/{CONTAINER}"
        for number, controller in ((12, "memory"), (4, "cpu,cpuacct"), (1, "name=systemd"))
    ),
    "v1, systemd, with an unused v2": (
        f"9:memory:/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{CONTAINER}.scope\n"
        "2:misc:/\n0::/system.slice/containerd.service"
    ),
    "a cgroup that the container made below its own, named after another pod": (
        f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{CONTAINER}.scope/"
        f"kubepods-pod{OTHER.replace('-', '_')}.slice/cri-containerd-{'e' * 64}.scope"
    ),
    "a container that is being removed": (
        f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{CONTAINER}.scope (deleted)"
    ),
}


@pytest.mark.parametrize("cgroup", [text for name, text in FOUND.items() if "removed" not in name])
def test_a_cgroup_identifies_the_pod_of_a_process(cgroup: str) -> None:
    assert pod_of(cgroup) == UID


def test_a_hash_identifies_a_static_pod() -> None:
    assert pod_of(f"0::/kubepods/burstable/pod{STATIC}/{CONTAINER}") == STATIC


@pytest.mark.parametrize(
    "cgroup",
    [
        "",
        "0::/",
        "0::/user.slice/user-1000.slice/session-1.scope",
        f"0::/user.slice/user-1000.slice/user@1000.service/kubepods/pod{UID}/{CONTAINER}",
        f"0::/kubepods/burstable/pod{UID}",
        f"0::/kubepods/burstable/pod{UID}/",
        f"0::/kubepods/burstable/pod{UID}/{'c' * 63}",
        f"0::/kubepods/burstable/pod{UID}x/{CONTAINER}",
        f"0::/kubepods/burstable/pod{UID[:-1]}/{CONTAINER}",
        f"0::/kubepods/burstable/pod{UID}/sh/{CONTAINER}",
        f"0::/kubepods/burstable/xpod {UID}/{CONTAINER}",
        FOUND["a container that is being removed"],
    ],
)
def test_a_cgroup_outside_of_a_pods_containers_is_refused(cgroup: str) -> None:
    with pytest.raises(NotInPodError, match="no pod's"):
        pod_of(cgroup)


def test_contradicting_cgroup_hierarchies_are_refused() -> None:
    with pytest.raises(NotInPodError, match="different pods"):
        pod_of(f"4:memory:/kubepods/pod{UID}/{CONTAINER}\n3:cpu:/kubepods/pod{OTHER}/{CONTAINER}")
