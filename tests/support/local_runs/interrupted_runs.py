"""`wattloop run` that receives a signal at a chosen line of its main thread.

The run is the real command with the real database, folder, watchdog and processes, in a forked
process. Only the agent and the reporting API's socket are replaced: a training is a shell command
that records that it ran, and sends its only report through a named pipe.
"""

import importlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType
from typing import Any

from support.backends.sample_reports import report
from support.forked_process import forked
from support.local_runs.local_runs import LocalJob, RunProcess
from wattloop import interruption
from wattloop.commands.main import main
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.local import local_run
from wattloop_operator.local.local_backend import LocalBackend
from wattloop_operator.local.output_folder import OutputFolder
from wattloop_operator.local.report_server import LocalTokens, local_progress
from wattloop_operator.local.watchdog import Watchdog
from wattloop_operator.plots import write_plots
from wattloop_operator.reporting.interfaces import BearerToken
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.store.store import Store
from wattloop_operator.workloads.injection import RunAddresses

RECURRENCES = 2
JOB: dict[str, Any] = {"batchSize": {"default": 32, "candidates": [32]}}
TRAINING = ["sh", "-c", 'echo "$WATTLOOP_RECURRENCE" >> ran; echo "$WATTLOOP_RECURRENCE" > report; read _ < answer']
# Lines of these files are counted: the product's, and those of its context managers.
COUNTED = ("/wattloop/", "/wattloop_operator/", "/wattloop_planner/", "/contextlib.py")
# What a run imports late: without it, each of hundreds of forked runs would import NumPy, SciPy and Alembic again.
for _module in (
    "alembic.command",
    "matplotlib.backends.backend_agg",
    "sqlalchemy.dialects.sqlite",
    "wattloop_operator.command_line.run",
    "wattloop_operator.history.rows",
    "wattloop_operator.local.live_view",
    "wattloop_planner.bandit.curve_model",
    "wattloop_planner.bandit.thompson_sampling",
):
    importlib.import_module(_module)
assert write_plots, "imported here for the same reason"


@dataclass(frozen=True)
class Ended:
    """How an interrupted run ended.

    Attributes:
        code: Its exit code, negative for a signal.
        ended_before_signal: Whether it ended before the line of the signal.
    """

    code: int
    stderr: str
    ended_before_signal: bool


def run_interrupted(
    local_job: LocalJob,
    line: int | None,
    number: int = signal.SIGINT,
    *,
    repeat_after: int = 0,
    with_plots: bool = True,
    counted: tuple[str, ...] = COUNTED,
) -> Ended:
    """Run the job, and send the signal when its main thread is at this line.

    Args:
        line: The line, counted from 1; None for no signal.
        repeat_after: After how many lines the signal is repeated; 0 for no repetition.
        with_plots: Whether the run draws its plots, which takes most of its time.
        counted: The files whose lines are counted.
    """
    _write_job(local_job)
    local_job.draws_plots = with_plots
    arguments = local_job.arguments("--recurrences", str(RECURRENCES))
    stderr, private = local_job.folder / "stderr", local_job.folder / "tmp"
    private.mkdir(exist_ok=True)
    for pipe in (local_job.folder / "report", local_job.folder / "answer"):
        if not pipe.exists():
            os.mkfifo(pipe)
    for path in (stderr, local_job.folder / "ended-before-signal"):
        path.unlink(missing_ok=True)

    def interrupted() -> int:
        tempfile.tempdir = str(private)
        clock = _LineClock(counted, {line: number, (line or 0) + repeat_after: number} if line else {})
        if repeat_after:
            # No real time passes between two lines.
            interruption.SAME_REQUEST_SECONDS = 0.0
        carry_out = local_run.LocalRun.carry_out
        local_run.LocalRun._backend = _backend  # type: ignore[method-assign]
        # The lines before it start nothing. Tests of whole processes cover them.
        local_run.LocalRun.carry_out = lambda run, show: clock.run(lambda: carry_out(run, show))  # type: ignore[method-assign]
        code = main(arguments)
        if not clock.delivered:
            (local_job.folder / "ended-before-signal").touch()
        return code

    pid = forked(interrupted, local_job.folder / "stdout", stderr)
    code = RunProcess(pid, stderr).ended()
    return Ended(code, stderr.read_text(), (local_job.folder / "ended-before-signal").exists())


class _LineClock:
    def __init__(self, counted: tuple[str, ...], signals: dict[int | None, int]) -> None:
        self._counted = counted
        # By file, because every call of the traced program asks.
        self._is_counted: dict[str, bool] = {}
        self.now = 0
        self.delivered = False
        self._signals = signals

    def run(self, call: Callable[[], Snapshot]) -> Snapshot:
        sys.settrace(self._trace)
        try:
            return call()
        finally:
            sys.settrace(None)

    def _trace(self, frame: FrameType, _event: str, _value: object) -> Any:
        file = frame.f_code.co_filename
        counted = self._is_counted.get(file)
        if counted is None:
            counted = self._is_counted[file] = any(part in file for part in self._counted)
        return self._line if counted else None

    def _line(self, _frame: FrameType, event: str, _value: object) -> Any:
        if event == "line":
            self.now += 1
            if self.now in self._signals:
                number = self._signals.pop(self.now)
                if not self._signals:
                    sys.settrace(None)
                self.delivered = True
                signal.raise_signal(number)
        return self._line


def _write_job(local_job: LocalJob) -> None:
    container = {"name": "train", "image": "none", "command": TRAINING}
    local_job.job(
        template={"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}}, **JOB
    )


def _backend(
    run: local_run.LocalRun, stack: ExitStack, folder: OutputFolder, store: Store, wake_event: threading.Event
) -> LocalBackend:
    watchdog = stack.enter_context(Watchdog())
    tokens = LocalTokens(watchdog.folder)
    service = ReportService(local_progress(store, wake_event.set), tokens)

    def process_reports() -> None:
        while True:
            name = (run.source.parent / "report").read_text().strip()
            token = (watchdog.folder / f"{name}.token").read_text()
            service.authorize(BearerToken(token), "local", name)
            service.receive("local", name, report(metric=0.9, finished=True))
            (run.source.parent / "answer").write_text("taken\n")

    threading.Thread(target=process_reports, daemon=True).start()
    return LocalBackend(
        store,
        source=run.source.absolute(),
        logs=folder.logs,
        addresses=RunAddresses(),
        tokens=tokens,
        gpu_environment={},
        devices=1,
        watchdog=watchdog,
        wake=wake_event.set,
        observe=service.observe,
    )
