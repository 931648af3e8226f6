"""kill -9 of the operator while ranks train: they all end after the same epoch, with one that is started again."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.free_ports import free_port
from support.reporting.memory_progress_store import DECIDED
from support.test_sets.parameters import exhaustive_after
from wattloop import Run
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.local.report_server import RECURRENCE
from wattloop_operator.store import open_store

pytestmark = pytest.mark.processes

RANKS = 4
LAST_EPOCH = 3
NAMESPACE, NAME = "team", "digits-0"
STEP_SECONDS = 90.0
# As a replica of the operator does, it writes at most once a second what is not urgent.
SERVER = """
import sys, threading
from pathlib import Path
from wattloop.commands.settings import Address
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.local.report_server import local_progress
from wattloop_operator.reporting.app import create_app
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.store import open_store

class Anyone:
    def authorize(self, *caller):
        return ""

with open_store(Path(sys.argv[1])) as store:
    service = ReportService(local_progress(store, lambda: None), Anyone(), write_interval_seconds=1.0)
    HttpService("reporting API", create_app(service), Address("127.0.0.1", int(sys.argv[2]))).start()
    print("serves", flush=True)
    threading.Event().wait()
"""


@dataclass
class Server:
    """The operator's reporting API as a process, always at the same address."""

    database: Path
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/namespaces/{NAMESPACE}/recurrences/{NAME}"

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(self.database), str(self.port)], stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        with self.process.stdout as output:
            assert output.readline() == b"serves\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.parametrize(
    ("killing_rank", "epoch"), exhaustive_after([(2, LAST_EPOCH), (0, 1), (0, LAST_EPOCH), (2, 1)], usual=2)
)
def test_all_ranks_end_after_the_same_epoch_although_the_operator_is_killed(
    tmp_path: Path, killing_rank: int, epoch: int
) -> None:
    database = tmp_path / "wattloop.db"
    metadata = DECIDED.metadata.model_copy(update={"namespace": NAMESPACE, "name": NAME})
    with open_store(database) as store:
        store.objects.create(RECURRENCE, NAMESPACE, NAME, DECIDED.model_copy(update={"metadata": metadata}).to_wire())
    server = Server(database)
    # A step ends when all ranks have done it. A rank that ended before the others would break it.
    step = threading.Barrier(RANKS, timeout=STEP_SECONDS)

    def train(rank: int) -> tuple[int, bool]:
        variables = {
            "WATTLOOP_JOB": "team/digits",
            "WATTLOOP_MAX_EPOCHS": "9",
            "WATTLOOP_TARGET_METRIC": "accuracy",
            "WATTLOOP_TARGET_THRESHOLD": "0.9",
            "WATTLOOP_REPORT_URL": server.url,
            "RANK": str(rank),
            "WORLD_SIZE": str(RANKS),
        }
        with Run(environment=variables) as run:
            for index in run.epochs():
                step.wait()
                if rank == killing_rank and index + 1 == epoch:
                    # The others ask, or wait for their answers.
                    server.kill()
                    server.start()
                run.report(metric=0.99 if index + 1 == LAST_EPOCH else 0.1)
            return run.completed_epochs, run.reached

    try:
        with ThreadPoolExecutor(RANKS) as threads:
            assert list(threads.map(train, range(RANKS))) == [(LAST_EPOCH, True)] * RANKS
    finally:
        server.kill()
    with open_store(database) as store:
        stored = store.objects.get(RECURRENCE, NAMESPACE, NAME)
        progress = store.attempt_progress.attempts([stored.read_as(TrainingRecurrence)])[0].progress
    assert (progress.reached, progress.stop_epoch, progress.curve and progress.curve.epochs) == (
        True,
        LAST_EPOCH,
        (1.0, 2.0, 3.0),
    )
