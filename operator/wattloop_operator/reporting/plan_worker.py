"""Plans a pipeline in a process of its own, with bounds on its memory and its time.

`python -m wattloop_operator.reporting.plan_worker` reads a `PlanningRequest` from its standard input and writes a
`PipelineFrontier` to its standard output, as the store keeps them. It ends with the thread that waits for it.
"""

import logging
import math
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from wattloop.errors import OperationError
from wattloop_operator.memory_shares import LIMIT_FILES, container_bytes, planner_bytes
from wattloop_operator.parent_process import end_with_parent
from wattloop_operator.reconcile.pipeline.pipeline_json import decode, encode
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineFrontier
from wattloop_operator.reconcile.pipeline.profile import PlanningRequest

MAX_SECONDS = 300.0
MAX_MEMORY_BYTES = 4 * 1024**3
# The operator answers the ranks of all jobs meanwhile.
NICENESS = 10
# One processor: each thread of the numerical libraries would take another one.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
MAX_SHOWN_CHARACTERS = 300
RETRY_AFTER = timedelta(minutes=10)

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
    command = (sys.executable, "-P", "-m", "wattloop_operator.reporting.plan_worker", str(os.getpid()))
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter and a module of this package
            command,
            input=encode(request),
            capture_output=True,
            timeout=max_seconds,
            check=False,
            env={**os.environ, **ONE_THREAD},
        )
        if done.returncode == 0:
            return replace(decode(PipelineFrontier, done.stdout), planned_at=now)
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        problem = f"the planner ended with status {done.returncode}: {lines[-1][:MAX_SHOWN_CHARACTERS]}"
    except subprocess.TimeoutExpired:
        problem = f"the planner took more than {max_seconds:g} s for {sum(map(len, request.instructions))} instructions"
    except (OSError, OperationError) as error:
        problem = f"the planner failed: {' '.join(str(error).split())[:MAX_SHOWN_CHARACTERS]}"
    logger.warning("%s", problem)
    return PipelineFrontier(request.profile_digest, problem=problem, planned_at=now, retry_at=now + RETRY_AFTER)


def planner_memory_bytes(limit_files: Sequence[Path] = LIMIT_FILES) -> int:
    """The most memory that the planner may use: its share of the container's, since the rest is the operator's."""
    container = container_bytes(limit_files)
    return MAX_MEMORY_BYTES if container is None else min(planner_bytes(container), MAX_MEMORY_BYTES)


def limit_resources() -> int:
    """Bound the memory, the processor time and the priority of this process; returns the bytes of memory."""
    most_bytes, most_seconds = planner_memory_bytes(), math.ceil(MAX_SECONDS)
    # Not the address space: 60 MB of it are libraries, most of which the operator's process has mapped too.
    resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (most_seconds, most_seconds))
    os.nice(NICENESS)
    return most_bytes


def main() -> int:
    """Plan one pipeline for the process of the given id, and end with it; returns the exit status."""
    end_with_parent(int(sys.argv[1]))
    # Deferred: the operator imports this module too, and is ready before it imports NumPy.
    from wattloop_operator.reconcile.pipeline.frontier_planning import plan_frontier  # noqa: PLC0415

    most_bytes = limit_resources()
    request = decode(PlanningRequest, sys.stdin.buffer.read())
    try:
        frontier = plan_frontier(request)
    except MemoryError:
        problem = f"the planner needs more than {most_bytes // 1024**2} MiB of memory"
        frontier = PipelineFrontier(request.profile_digest, problem=problem)
    sys.stdout.buffer.write(encode(frontier))
    return 0


if __name__ == "__main__":
    sys.exit(main())
