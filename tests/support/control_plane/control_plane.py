"""A real control plane on this machine's loopback: etcd, kube-apiserver and kube-controller-manager.

RBAC, token signing and admission are on, so it rejects what a cluster rejects. It has no nodes;
`kubelet` replaces them. With `NodeNetwork` real nodes can join, as in tests/node.
"""

import base64
import contextlib
import ipaddress
import shutil
import ssl
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from support.control_plane.certificates import CertificateAuthority, signing_key
from support.control_plane.kubeconfig import write_kubeconfig
from support.control_plane.processes import ServerProcess
from support.free_ports import free_port

_READY_WITHIN_SECONDS = 200.0
_SERVICE_ADDRESSES = "10.96.0.0/16"
# The lifecycle controller would consider the simulated node dead, because it sends no heartbeats.
_CONTROLLERS = "*,-node-lifecycle-controller,-node-ipam-controller"
_CONTROLLERS_WITH_NODES = "*,-node-ipam-controller"
_NODE_LOST_SECONDS = 50


class NotReadyError(Exception):
    """A part of the control plane did not become ready in time."""


@dataclass(frozen=True)
class NodeNetwork:
    """Network of a control plane with real nodes.

    Attributes:
        address: This machine's address for pods and kubelets that connect to the API server.
    """

    address: str
    service_addresses: str


class ControlPlane:
    """A running control plane. Use `running_control_plane`, which also stops it.

    Args:
        folder: Folder for its keys, logs and data.
        nodes: Network of real nodes; None: it has no nodes and listens only on the loopback.
        controllers_port: Port of the metrics of kube-controller-manager; 0: it serves none.
    """

    def __init__(
        self, programs: Mapping[str, Path], folder: Path, nodes: NodeNetwork | None = None, *, controllers_port: int = 0
    ) -> None:
        self.programs = programs
        """Path of each program by name."""
        self.folder = folder
        """Folder of its keys, logs and data."""
        self.nodes = nodes
        self._controllers_port = controllers_port
        self.authority = CertificateAuthority()
        etcd_port, peer_port, self.port = free_port(), free_port(), free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        """URL of the API server."""
        self.admin_kubeconfig = self.kubeconfig_by_certificate("admin", ["system:masters"])
        """A kubeconfig with all rights."""
        self._etcd_url = f"http://127.0.0.1:{etcd_port}"
        self._etcd_peer_url = f"http://127.0.0.1:{peer_port}"
        self._processes: list[ServerProcess] = []

    @property
    def process_ids(self) -> dict[str, int]:
        """The process id of each part."""
        return {process.name: process.pid for process in self._processes}

    def kubeconfig_by_certificate(self, user: str, groups: list[str]) -> Path:
        """A kubeconfig of a user with a client certificate; RBAC grants its rights."""
        return write_kubeconfig(
            self.folder / f"{user.replace(':', '-')}.kubeconfig",
            server=self.url,
            authority=self.authority.certificate,
            certificate=self.authority.client(user, groups),
        )

    def kubeconfig_by_token(self, name: str, token: str, *, namespace: str = "default") -> Path:
        """A kubeconfig of the token's user, in a file with this name."""
        return write_kubeconfig(
            self.folder / f"{name}.kubeconfig",
            server=self.url,
            authority=self.authority.certificate,
            token=token,
            namespace=namespace,
        )

    def start(self) -> None:
        """Start the parts in order, each when the previous one is ready."""
        etcd = self._start("etcd", self._etcd_flags())
        self._await_ready(etcd, _health_of(f"{self._etcd_url}/health"))
        server = self._start("kube-apiserver", self._api_server_flags())
        self._await_api_server(server)
        self._start("kube-controller-manager", self._controller_manager_flags())

    def start_scheduler(self) -> None:
        """Start the scheduler, which only tests with real nodes need."""
        kubeconfig = self.kubeconfig_by_certificate("system:kube-scheduler", [])
        self._start("kube-scheduler", [f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0"])

    def stop(self) -> None:
        """Stop the parts in reverse order: without etcd an API server takes a minute to end."""
        while self._processes:
            self._processes.pop().stop()
        shutil.rmtree(self.folder / "etcd-data", ignore_errors=True)

    def stop_api_server(self) -> None:
        """Stop the API server alone, until `start_api_server`."""
        self._processes[self._index_of("kube-apiserver")].stop()

    def start_api_server(self) -> None:
        """Start the stopped API server again, with the same keys, address and data, and wait until it is ready."""
        index = self._index_of("kube-apiserver")
        stopped = self._processes[index]
        self._processes[index] = ServerProcess(stopped.name, stopped.command, self.folder)
        self._await_api_server(self._processes[index])

    def compact_etcd(self) -> int:
        """Remove all but the newest revision of each key; returns that of the compaction."""
        revision = int(self._etcd("maintenance/status", {})["header"]["revision"])
        self._etcd("kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    def remove_objects(self, resource: str, namespace: str) -> int:
        """Remove the objects of a kind and namespace from etcd at once; returns how many there were.

        To delete hundreds of large ones, the API server takes half a minute of processor time.

        Args:
            resource: Their place in etcd, such as `jobs` or `wattloop.dev/recurringtrainingjobs`.
        """
        prefix = f"/registry/{resource}/{namespace}/".encode()
        body = {"key": _base64(prefix), "range_end": _base64(prefix[:-1] + b"0")}
        return int(self._etcd("kv/deleterange", body).get("deleted", 0))

    def copy_object(self, resource: str, created: Mapping[str, Any], names: Iterable[str]) -> None:
        """Store copies of an object in etcd, as the API server has stored it; watches see them as any other.

        To create a large one, the API server takes a tenth to a second of processor time, each time the same.

        Args:
            resource: Its place in etcd, such as `jobs` or `wattloop.dev/recurringtrainingjobs`.
            created: The object as the API server has returned it.
            names: Names of the copies, each as long as its own, which no other text in it contains.
        """
        name, namespace, uid = (created["metadata"][field] for field in ("name", "namespace", "uid"))
        folder = f"/registry/{resource}/{namespace}/"
        (found,) = self._etcd("kv/range", {"key": _base64(f"{folder}{name}".encode())})["kvs"]
        stored = base64.b64decode(found["value"])
        # One client for all of them: each makes a context for TLS, which takes longer than a request.
        with httpx.Client(timeout=60.0, trust_env=False) as etcd:
            for copy in names:
                # Of the same length, because it may be stored as a protocol buffer.
                assert len(copy) == len(name)
                value = stored.replace(uid.encode(), str(uuid.uuid4()).encode()).replace(name.encode(), copy.encode())
                body = {"key": _base64(f"{folder}{copy}".encode()), "value": _base64(value)}
                etcd.post(f"{self._etcd_url}/v3/kv/put", json=body).raise_for_status()

    def _etcd(self, call: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = httpx.post(f"{self._etcd_url}/v3/{call}", json=body, timeout=60.0, trust_env=False)
        found: dict[str, Any] = answer.raise_for_status().json()
        return found

    def check_alive(self) -> None:
        """Raise an error if a part has ended."""
        for process in self._processes:
            process.check_alive()

    def start_again_what_ended(self) -> None:
        """Restart the parts that have ended, with the same keys and data, without waiting for them."""
        for index, process in enumerate(self._processes):
            if process.ended:
                self._processes[index] = ServerProcess(process.name, process.command, self.folder)

    def _start(self, name: str, flags: list[str]) -> ServerProcess:
        process = ServerProcess(name, [self.programs[name], *flags], self.folder)
        self._processes.append(process)
        return process

    def _index_of(self, name: str) -> int:
        return next(index for index, process in enumerate(self._processes) if process.name == name)

    def _await_api_server(self, server: ServerProcess) -> None:
        context = ssl.create_default_context(cadata=self.authority.certificate.decode("ascii"))
        self._await_ready(server, _health_of(f"{self.url}/readyz", context))

    def _await_ready(self, process: ServerProcess, healthy: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _READY_WITHIN_SECONDS
        while not healthy():
            process.check_alive()
            if time.monotonic() > deadline:
                raise NotReadyError(
                    f"{process.name} is not ready after {_READY_WITHIN_SECONDS:.0f} s; the end of {process.log}:\n"
                    f"{process.log_tail()}"
                )
            time.sleep(0.05)

    def _write(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_bytes(content)
        return path

    def _etcd_flags(self) -> list[str]:
        return [
            f"--data-dir={self.folder / 'etcd-data'}",
            f"--listen-client-urls={self._etcd_url}",
            f"--advertise-client-urls={self._etcd_url}",
            f"--listen-peer-urls={self._etcd_peer_url}",
            f"--initial-advertise-peer-urls={self._etcd_peer_url}",
            f"--initial-cluster=default={self._etcd_peer_url}",
            # The data need not survive a power failure.
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _api_server_flags(self) -> list[str]:
        address = self.nodes.address if self.nodes else "127.0.0.1"
        services = self.nodes.service_addresses if self.nodes else _SERVICE_ADDRESSES
        names = ["localhost", "kubernetes.default.svc"]
        serving = self.authority.server(["127.0.0.1", address, _first_address(services)], names)
        tokens = signing_key()
        return [
            f"--etcd-servers={self._etcd_url}",
            f"--advertise-address={address}",
            f"--secure-port={self.port}",
            f"--tls-cert-file={self._write('server.crt', serving.certificate)}",
            f"--tls-private-key-file={self._write('server.key', serving.private_key)}",
            f"--client-ca-file={self._write('authority.crt', self.authority.certificate)}",
            f"--cert-dir={self.folder}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._write('tokens.pub', tokens.certificate)}",
            f"--service-account-signing-key-file={self._write('tokens.key', tokens.private_key)}",
            f"--service-cluster-ip-range={services}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            "--shutdown-delay-duration=0s",
            *(
                self._flags_with_nodes()
                if self.nodes
                else ["--bind-address=127.0.0.1", "--endpoint-reconciler-type=none"]
            ),
        ]

    def _flags_with_nodes(self) -> list[str]:
        to_kubelets = self.authority.client("kube-apiserver-kubelet-client", ["system:masters"])
        return [
            # Kubelets connect by the bridge's address, kubectl by the loopback.
            "--bind-address=0.0.0.0",
            "--enable-admission-plugins=NodeRestriction",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={self._write('to-kubelets.crt', to_kubelets.certificate)}",
            f"--kubelet-client-key={self._write('to-kubelets.key', to_kubelets.private_key)}",
        ]

    def _controller_manager_flags(self) -> list[str]:
        kubeconfig = self.kubeconfig_by_certificate("system:kube-controller-manager", [])
        return [
            f"--kubeconfig={kubeconfig}",
            f"--controllers={_CONTROLLERS_WITH_NODES if self.nodes else _CONTROLLERS}",
            f"--node-monitor-grace-period={_NODE_LOST_SECONDS}s",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={self.folder / 'tokens.key'}",
            f"--root-ca-file={self.folder / 'authority.crt'}",
            "--leader-elect=false",
            f"--secure-port={self._controllers_port}",
            *(self._flags_of_metrics() if self._controllers_port else []),
        ]

    def _flags_of_metrics(self) -> list[str]:
        return ["--bind-address=127.0.0.1", "--authorization-always-allow-paths=/metrics", f"--cert-dir={self.folder}"]


@contextlib.contextmanager
def running_control_plane(
    programs: Mapping[str, Path], folder: Path, *, controllers_port: int = 0
) -> Iterator[ControlPlane]:
    """A context with a running control plane.

    Args:
        programs: Paths of kube-apiserver, kube-controller-manager and etcd.
        folder: An empty folder for keys, logs and data.
        controllers_port: Port of the metrics of kube-controller-manager; 0: it serves none.
    """
    plane = ControlPlane(programs, folder, controllers_port=controllers_port)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _first_address(network: str) -> str:
    """The address of the Service `kubernetes`, the first of the Services' range."""
    return str(next(ipaddress.ip_network(network).hosts()))


def _health_of(url: str, context: ssl.SSLContext | None = None) -> Callable[[], bool]:
    def healthy() -> bool:
        try:
            return httpx.get(url, verify=context or True, timeout=20.0, trust_env=False).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    return healthy
