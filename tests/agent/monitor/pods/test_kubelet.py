"""The kubelet's answers, sent by the real gRPC library."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agents.kubelet_server import KubeletServer, listing, serving
from wattloop_agent.monitor.pods.kubelet import (
    LIST,
    GrpcCallError,
    PodDevices,
    PodGpus,
    PodName,
    devices_by_pod,
    fields,
    gpus_of,
    names_by_uid,
    needs_names,
    unary_call,
)


@pytest.fixture
def kubelet(folder: Path) -> Iterator[tuple[Path, KubeletServer]]:
    with serving(folder / "kubelet.sock") as server:
        yield folder / "kubelet.sock", server


def test_each_pod_has_the_ids_of_nvidias_devices(kubelet: tuple[Path, KubeletServer]) -> None:
    path, server = kubelet
    server.pods = {("default", "trainer"): ["GPU-a", "GPU-b"], ("other", "idle"): []}
    ids = {
        PodName("default", "trainer"): {"main": frozenset({"GPU-a", "GPU-b"})},
        PodName("other", "idle"): {"main": frozenset[str]()},
    }
    assert devices_by_pod(path, 5.0) == PodDevices(ids, has_others=False)
    server.claims = ("gpu",)
    assert devices_by_pod(path, 5.0) == PodDevices(ids, has_others=True)
    server.claims, server.resource = (), "example.com/gpu-memory"
    assert devices_by_pod(path, 5.0) == PodDevices(ids, has_others=True)


def test_devices_of_others_may_be_gpus_by_the_name_of_their_resource_or_their_id(
    kubelet: tuple[Path, KubeletServer],
) -> None:
    path, server = kubelet
    server.pods = {("default", "trainer"): []}

    def may_be_gpus(resource: str, device: str) -> bool:
        server.resource, server.device = resource, device
        return devices_by_pod(path, 5.0).has_others

    gpus = ("amd.com/gpu", "gpu.intel.com/i915", "volcano.sh/vgpu-number", "tencent.com/vcuda-core")
    assert all(may_be_gpus(each, "0") for each in gpus)
    assert may_be_gpus("example.com/accelerator", f"{A}-0")
    others = ("vpc.amazonaws.com/efa", "devices.kubevirt.io/kvm", "github.com/fuse", "intel.com/sriov", "rdma/gpu0")
    assert not any(may_be_gpus(each, "0000:3b:02.1") for each in others)


def test_an_answer_larger_than_every_http2_window_arrives_completely(kubelet: tuple[Path, KubeletServer]) -> None:
    path, server = kubelet
    server.pods = {("default", f"pod-{number}"): [f"GPU-{number}-{k}" for k in range(16)] for number in range(2000)}
    devices = devices_by_pod(path, 5.0).ids
    assert len(devices) == 2000
    assert devices[PodName("default", "pod-1999")] == {"main": {f"GPU-1999-{k}" for k in range(16)}}


def test_an_error_keeps_the_servers_message(kubelet: tuple[Path, KubeletServer]) -> None:
    path, server = kubelet
    server.fails = True
    with pytest.raises(GrpcCallError, match="status 8: too many requests"):
        devices_by_pod(path, 5.0)


def test_an_unknown_method_is_an_error(kubelet: tuple[Path, KubeletServer]) -> None:
    with pytest.raises(GrpcCallError, match="status 12"):
        unary_call(kubelet[0], "/v1.PodResourcesLister/None", b"", 5.0)


def test_without_a_kubelet_the_call_fails(folder: Path) -> None:
    with pytest.raises(GrpcCallError, match="No such file"):
        devices_by_pod(folder / "none.sock", 5.0)


@pytest.mark.parametrize("response", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00" * 100])
def test_a_server_that_speaks_no_grpc_fails_the_call_in_time(folder: Path, response: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(folder / "sock"))
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(response)
                while response and connection.recv(65536):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(GrpcCallError):
            unary_call(folder / "sock", LIST, b"", 0.2)
        thread.join()


def test_uids_are_read_from_the_names_of_log_folders(tmp_path: Path) -> None:
    for name in ("default_trainer_uid-1", "kube-system_static_hash", "no-pod", "a_b_c_d"):
        (tmp_path / name).mkdir()
    assert names_by_uid(tmp_path) == {"uid-1": PodName("default", "trainer"), "hash": PodName("kube-system", "static")}


@given(st.binary(max_size=200))
def test_the_decoder_refuses_arbitrary_bytes_cleanly(data: bytes) -> None:
    try:
        content = list(fields(data))
    except ValueError:
        return
    assert sum(len(value) for _, value in content) <= len(data)


@given(
    st.dictionaries(
        st.tuples(st.text("abc", min_size=1), st.text("xyz", min_size=1)), st.lists(st.text("G-1:")), max_size=4
    )
)
def test_what_protobuf_encodes_is_decoded(pods: dict[tuple[str, str], list[str]]) -> None:
    decoded = []
    for number, message in fields(listing(pods)):
        assert number == 1
        content = dict(fields(message))
        decoded.append((content[2].decode(), content[1].decode()))
    assert decoded == list(pods)


A = "GPU-00000000-0000-0000-0000-00000000000a"
B = "GPU-00000000-0000-0000-0000-00000000000b"
MIG = "MIG-41b36413-03bc-566b-ae38-fa5fcd6c8c0b"
UNKNOWN_MIG = "MIG-00000000-0000-0000-0000-000000000000"
NAMES = {"nvidia0": A, "nvidia1": B, MIG: B}
NONE: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("ids", "exclusive", "shared", "unknown"),
    [
        ([A, B], {A, B}, NONE, NONE),
        ([f"{A}::0", f"{A}::1"], NONE, {A}, NONE),
        ([A, f"{A}::1"], NONE, {A}, NONE),
        (["nvidia1"], {B}, NONE, NONE),
        (["nvidia0/gi3"], NONE, {A}, NONE),
        (["nvidia0/gi3/vgpu0"], NONE, {A}, NONE),
        (["nvidia1/vgpu0"], NONE, {B}, NONE),
        ([MIG], NONE, {B}, NONE),
        ([f"{MIG}::3"], NONE, {B}, NONE),
        ([f"MIG-{A}/7/0"], NONE, {A}, NONE),
        ([A, MIG, UNKNOWN_MIG], {A}, {B}, {UNKNOWN_MIG}),
        ([f"{MIG}/0", f"{MIG}::", "MIG-1", f"MIG-{A}"], NONE, NONE, {f"{MIG}/0", f"{MIG}::", "MIG-1", f"MIG-{A}"}),
        (["nvidia7", "0", "GPU-1", f"{A}::", "nvidia0/../nvidia1"], NONE, NONE,
         {"nvidia7", "0", "GPU-1", f"{A}::", "nvidia0/../nvidia1"}),
        ([], NONE, NONE, NONE)
    ]
)  # fmt: skip
def test_an_id_names_an_exclusive_gpu_a_shared_one_or_is_unknown(
    ids: list[str], exclusive: set[str], shared: set[str], unknown: set[str]
) -> None:
    assert gpus_of(ids, NAMES) == PodGpus(frozenset(exclusive), frozenset(shared), frozenset(unknown))


@pytest.mark.parametrize(
    ("ids", "needed"),
    [([A, f"{B}::0"], False), ([], False), ([A, "nvidia1"], True), ([MIG], True), (["nvidia0/gi1"], True)],
)
def test_nvml_is_read_only_if_an_id_is_no_gpu_uuid(ids: list[str], needed: bool) -> None:
    assert needs_names(ids) is needed
