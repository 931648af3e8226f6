"""A real operator is killed while a real agent holds a lease for a running training: the lease is not affected.

The operator gets SIGKILL, SIGTERM or SIGSTOP at every moment of a lease. The power limit is held
and restored without the operator; the next operator receives all energy, and the recurrence gets
its outcome.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

import nvml_simulator
from support.agents.agent_fixture import AgentFixture, until
from support.agents.gated_training import TRAINING
from support.agents.scraping import scraped
from support.control_plane.fixtures import MakeJob, Operators
from support.control_plane.kubelet import NODE_NAME, Kubelet
from support.control_plane.node_agent import SERVICE_ACCOUNT, agent_pod
from support.control_plane.objects import TRAINING_RECURRENCE
from support.control_plane.operator_process import OperatorProcess
from support.control_plane.training import AUDIENCE, TokenOfPod, environment_of
from support.control_plane.waiting import Object, WaitTimeoutError, wait_until
from support.free_ports import free_port
from wattloop.gpus.agent import AgentConnection
from wattloop_operator.domain.names import recurrence_name, slot_of_request

# Each part of a cell may take a minute on a slow machine.
pytestmark = pytest.mark.timeout(400)

FOUND, HELD = [400.0, 400.0], [250.0, 250.0]
SET = "nvmlDeviceSetPowerManagementLimit"
MINUTE = 60.0
COUNTER_STEP_SECONDS = 0.1
# Each signal and each moment once.
USUAL = {
    ("terminate", "before a hold"),
    ("hang", "during a hold"),
    ("kill", "after a hold"),
    ("kill", "during a restore"),
}
SIGNALS = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "hang": signal.SIGSTOP}
ENDED = {"kill": -signal.SIGKILL, "terminate": 130}


class Cell:
    """A node with an agent, a training that waits at its first gate, and the operator that started it."""

    def __init__(self, agent_fixture: AgentFixture, start: Callable[[], OperatorProcess], metrics: str) -> None:
        self.agent_fixture = agent_fixture
        self.start_operator = start
        self.metrics = metrics
        self.operator = start()
        self.pod: Object = {}

    def train(self, environment: dict[str, str]) -> None:
        program = self.agent_fixture.folder / "train.py"
        program.write_text(TRAINING)
        arguments = [sys.executable, str(program)]
        with (self.agent_fixture.folder / "training.log").open("w") as log:
            self.training = subprocess.Popen(
                arguments, cwd=self.agent_fixture.folder, env=environment, stdout=log, stderr=subprocess.STDOUT
            )
        self.reached("hold")
        self.used = self.energy_joules()

    def open(self, *gates: str) -> None:
        for authorizer in gates:
            (self.agent_fixture.folder / f"{authorizer}.open").touch()

    def reached(self, authorizer: str) -> None:
        until(
            (self.agent_fixture.folder / f"{authorizer}.reached").exists,
            f"the training is at the gate {authorizer}",
            MINUTE,
        )

    def energy_joules(self) -> float:
        return sum(gpu.energy_microjoules for gpu in self.agent_fixture.gpus.describe().gpus) / 1e6

    def push_failures(self) -> float:
        ((_, failures),) = scraped(self.metrics)["wattloop_agent_push_failures"]
        return failures

    def has_pushed(self) -> bool:
        ((_, age),) = scraped(self.metrics)["wattloop_agent_push_age_seconds"]
        return age >= 0

    def strike(self, how: str, when: str) -> None:
        """Advance to that moment and send the signal to the operator."""
        if when in {"after a hold", "during a restore"}:
            self.open("hold")
            self.reached("release")
            assert self.agent_fixture.limits == HELD
        if when in {"before a hold", "after a hold"}:
            os.kill(self.operator.pid, SIGNALS[how])
        else:
            self.strike_in_the_driver(how, "hold" if when == "during a hold" else "release")
        if how != "hang":
            assert self.operator.await_exit() == ENDED[how]

    def strike_in_the_driver(self, how: str, authorizer: str) -> None:
        """Send the signal while the agent sets the second GPU."""
        calls = self.agent_fixture.gpus.describe().calls.get(SET, 0)
        ticket = self.agent_fixture.gpus.inject_fault(SET, delay_seconds=60, first_call=2, count=1)
        self.open(authorizer)
        until(
            lambda: self.agent_fixture.gpus.describe().calls.get(SET, 0) >= calls + 2,
            "the second GPU is being set",
            MINUTE,
        )
        os.kill(self.operator.pid, SIGNALS[how])
        self.agent_fixture.gpus.clear_fault(ticket)

    def come_again(self, how: str) -> None:
        """Restart the operator as the kubelet does, or resume it."""
        if how == "hang":
            self.operator.resume()
        self.restart_if_ended()

    def restart_if_ended(self) -> None:
        if self.operator.ended:
            self.operator = self.start_operator()


@pytest.fixture
def agent_fixture() -> Iterator[AgentFixture]:
    with tempfile.TemporaryDirectory(prefix="wattloop-", dir="/tmp") as folder:
        state = nvml_simulator.create(
            Path(folder) / "gpus", model="A100", count=2, clock="virtual", permission="anyone"
        )
        with nvml_simulator.Machine(state) as gpus:
            yield AgentFixture(Path(folder), gpus)


@pytest.fixture
def start_operator(namespace: str, operators: Operators) -> Callable[[], OperatorProcess]:
    """Starts an operator, each time with the same database and address."""
    options = [f"--agent-service-account={namespace}/{SERVICE_ACCOUNT}", "--agent-socket-folder=/run/wattloop"]
    # No kubelet reports pods to this agent, so it sends no final report of an attempt.
    return operators(*options, "--agent-report-timeout-seconds=1")


@pytest.fixture
def cell(
    agent_fixture: AgentFixture,
    start_operator: Callable[[], OperatorProcess],
    make_job: MakeJob,
    core: client.CoreV1Api,
    kubelet: Kubelet,
    token_of_pod: TokenOfPod,
    namespace: str,
) -> Iterator[Cell]:
    cell = Cell(agent_fixture, start_operator, f"127.0.0.1:{free_port()}")
    url = cell.operator.url_of("reporting API")
    agents_token, trainings_token = agent_fixture.folder / "agent.token", agent_fixture.folder / "training.token"
    agents_token.write_text(token_of_pod(agent_pod(core, namespace, NODE_NAME), AUDIENCE))
    environment = {
        **agent_fixture.environment,
        "WATTLOOP_AGENT_METRICS_BIND": cell.metrics,
        # A power controller with a delayed driver must not count as hanging.
        "WATTLOOP_AGENT_HEARTBEAT_TIMEOUT": str(MINUTE),
        "WATTLOOP_AGENT_PUSH_URL": url,
        "WATTLOOP_AGENT_PUSH_TOKEN_FILE": str(agents_token),
        "WATTLOOP_AGENT_PUSH_INTERVAL": "0.1",
        "WATTLOOP_AGENT_NODE_NAME": NODE_NAME,
    }
    with agent_fixture.running(environment):
        key = make_job(power={"mode": "Fixed", "watts": 250})
        (pod,) = kubelet.pods_of_job(recurrence_name(key.name, 0, slot_of_request("first"), 0), namespace)
        cell.pod = kubelet.run(pod)
        trainings_token.write_text(token_of_pod(cell.pod, AUDIENCE))
        cell.train(
            {
                **os.environ,
                **nvml_simulator.environment(agent_fixture.gpus.path),
                **environment_of(cell.pod),
                "WATTLOOP_TOKEN_FILE": str(trainings_token),
                "WATTLOOP_AGENT_SOCKET": str(agent_fixture.socket),
            }
        )
        until(cell.has_pushed, "the agent has reported its GPUs to the operator", MINUTE)
        try:
            yield cell
        finally:
            agent_fixture.gpus.clear_faults()
            cell.training.kill()
            cell.training.wait()


def outcome(cell: Cell, cluster: DynamicClient, namespace: str) -> Object:
    """The status of the recurrence once it has a result; restarts an operator that ends by itself."""

    def result(recurrences: list[Object]) -> Object | None:
        return next((each["status"] for each in recurrences if "result" in (each.get("status") or {})), None)

    deadline = time.monotonic() + 2 * MINUTE
    while True:
        cell.restart_if_ended()
        try:
            found: Object = wait_until(
                cluster, TRAINING_RECURRENCE, result, "the recurrence's result", namespace=namespace, timeout_seconds=5
            )
        except WaitTimeoutError:
            if time.monotonic() > deadline:
                raise
        else:
            return found


@pytest.mark.parametrize(
    ("how", "when"),
    [
        pytest.param(how, when, marks=[] if (how, when) in USUAL else [pytest.mark.exhaustive])
        for how in SIGNALS
        for when in ("before a hold", "during a hold", "after a hold", "during a restore")
    ],
)
def test_no_fate_of_the_operator_affects_the_lease_of_a_running_training(
    cell: Cell, how: str, when: str, kubelet: Kubelet, cluster: DynamicClient, namespace: str
) -> None:
    cell.strike(how, when)
    failures = cell.push_failures()
    cell.open("hold")
    cell.reached("release")
    if when != "during a restore":
        until(lambda: cell.push_failures() > failures, "the agent has noticed", MINUTE)
        assert cell.agent_fixture.limits == HELD, "held without an operator"
    cell.open("release")
    until(lambda: cell.agent_fixture.limits == FOUND, "given back without an operator", MINUTE)
    with AgentConnection(cell.agent_fixture.socket) as connection:
        until(lambda: connection.leases() == [], "no lease is left", MINUTE)
    cell.come_again(how)
    log = cell.agent_fixture.folder / "training.log"
    assert cell.training.wait(2 * MINUTE) == 0, log.read_text()
    kubelet.succeed(cell.pod)
    status = outcome(cell, cluster, namespace)
    assert status["result"] == "Reached"
    used = cell.energy_joules() - cell.used
    unseen = 2 * COUNTER_STEP_SECONDS * sum(HELD)
    assert used > 50 * unseen
    assert float(status["usage"]["gpuEnergyJoules"]) == pytest.approx(used, abs=unseen)
    assert cell.agent_fixture.limits == FOUND
