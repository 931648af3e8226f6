"""The planner's process ends with the operator, however the operator ends."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

# Python imports this at the start of each process: planning begins, and does not end.
ENDLESS_PLANNING = """
import os, signal, sys
from types import SimpleNamespace

def plan_frontier(request):
    print(os.getpid(), file=open(os.environ["PLANS"], "w"), flush=True)
    signal.pause()

sys.modules["wattloop_operator.reconcile.pipeline.frontier_planning"] = SimpleNamespace(plan_frontier=plan_frontier)
"""
OPERATOR = """
import sys
from datetime import UTC, datetime
from wattloop_operator.reconcile.pipeline.profile import PlanningRequest
from wattloop_operator.reporting import pipeline_planner
from wattloop_operator.reporting.pipeline_planner import PipelinePlanner
from wattloop_operator.reporting.plan_worker import planned_in_process

class Planner(PipelinePlanner):
    def plan_next(self):
        self._plan(PlanningRequest("d1", (), (), ()), datetime.now(UTC))
        return True

pipeline_planner.POLL_SECONDS = 0.0
with Planner(None, planned_in_process, lambda *_: None, lambda: datetime.now(UTC)):
    sys.stdin.readline()
"""


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "asked to end"])
def test_the_planner_ends_with_the_operator_although_it_plans(tmp_path: Path, is_killed: bool) -> None:
    (tmp_path / "sitecustomize.py").write_text(ENDLESS_PLANNING)
    plans = tmp_path / "plans"
    os.mkfifo(plans)
    paths = os.pathsep.join([str(tmp_path), *(path for path in sys.path if path)])
    operator = subprocess.Popen(
        [sys.executable, "-c", OPERATOR],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths, "PLANS": str(plans)},
    )
    with plans.open() as opened:
        planner = os.pidfd_open(int(opened.readline()))
    try:
        if is_killed:
            operator.kill()
        operator.communicate(b"\n", timeout=60)
        assert operator.returncode == (-signal.SIGKILL if is_killed else 0)
        assert select.select([planner], [], [], 60)[0], "the planner runs"
    finally:
        os.close(planner)
        operator.kill()
        operator.wait()


def test_a_planner_whose_operator_has_ended_already_plans_nothing() -> None:
    command = [sys.executable, "-P", "-m", "wattloop_operator.reporting.plan_worker", str(os.getppid())]
    done = subprocess.run(command, input=b"", capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr.decode() == f"process {os.getppid()}, which started this one, has ended\n"
