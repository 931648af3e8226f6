"""Plans a pipeline in a process of its own, with bounds on its memory and its time.

`python -m wattloop_operator.reporting.plan_worker` reads a `PlanningRequest` from its standard input and writes a
`PipelineFrontier` to its standard output. A planner in the operator's own process would hold its interpreter lock
for seconds, and its memory until the operator ends.
"""

from __future__ import annotations

import logging
import resource
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta

from pydantic import TypeAdapter, ValidationError

from wattloop_operator.reconcile.pipeline.profile import PlanningRequest
from wattloop_operator.reconcile.pipeline.state import PipelineFrontier

MAX_SECONDS = 300.0
MAX_MEMORY_BYTES = 4 * 1024**3
MAX_SHOWN_CHARACTERS = 300
RETRY_AFTER = timedelta(minutes=10)

REQUEST = TypeAdapter(PlanningRequest)
FRONTIER = TypeAdapter(PipelineFrontier)

logger = logging.getLogger(__name__)


def planned_in_process(
    request: PlanningRequest, now: datetime, *, max_seconds: float = MAX_SECONDS
) -> PipelineFrontier:
    """Plan a pipeline in a process of its own; its failure is the problem of the returned frontier.

    Args:
        request: What to plan.
        now: The time, for the next try after a failure of the process.
        max_seconds: After so long the process is killed.
    """
    # -P, so that no file of the current folder is imported instead of a module.
    command = (sys.executable, "-P", "-m", "wattloop_operator.reporting.plan_worker")
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter and a module of this package
            command, input=REQUEST.dump_json(request), capture_output=True, timeout=max_seconds, check=False
        )
        if done.returncode == 0:
            return replace(FRONTIER.validate_json(done.stdout), planned_at=now)
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        problem = f"the planner ended with status {done.returncode}: {lines[-1][:MAX_SHOWN_CHARACTERS]}"
    except subprocess.TimeoutExpired:
        problem = f"the planner took more than {max_seconds:g} s for {sum(map(len, request.instructions))} instructions"
    except (OSError, ValidationError) as error:
        problem = f"the planner failed: {' '.join(str(error).split())[:MAX_SHOWN_CHARACTERS]}"
    logger.warning("%s", problem)
    return PipelineFrontier(request.profile_digest, problem=problem, planned_at=now, retry_at=now + RETRY_AFTER)


def main() -> int:
    """Plan one pipeline; returns the exit status."""
    # Deferred: the operator imports this module too, and is ready before it imports NumPy.
    from wattloop_operator.reconcile.pipeline.frontier import plan_frontier  # noqa: PLC0415

    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    request = REQUEST.validate_json(sys.stdin.buffer.read())
    try:
        frontier = plan_frontier(request)
    except MemoryError:
        problem = f"the planner needs more than {MAX_MEMORY_BYTES // 1024**3} GiB of memory"
        frontier = PipelineFrontier(request.profile_digest, problem=problem)
    sys.stdout.buffer.write(FRONTIER.dump_json(frontier))
    return 0


if __name__ == "__main__":
    sys.exit(main())
