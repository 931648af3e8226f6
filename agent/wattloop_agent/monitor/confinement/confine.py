"""Confines the monitor as far as the kernel lets it, and says what it does not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from wattloop_agent.monitor.confinement.landlock import deny_reads_below
from wattloop_agent.monitor.confinement.seccomp import deny_other_processes

logger = logging.getLogger(__name__)


def confine(pod_logs: Path | None) -> None:
    """Have this process reach no other process and read no pod's log; before its first thread.

    A kernel that lacks one of the two is no reason to leave a node's GPUs without their agent: it
    is logged.

    Args:
        pod_logs: The kubelet's folder of pod logs; None: the process does not look there.
    """
    is_blind = pod_logs is None or _done("contents of pods' logs", lambda: deny_reads_below(pod_logs))
    if _done("signals, memory and limits of other processes", deny_other_processes) and is_blind:
        logger.info("the monitor is confined")


def _done(what: str, restrict: Callable[[], None]) -> bool:
    try:
        restrict()
    except OSError as error:
        logger.warning("the kernel does not confine the monitor", extra={"open": what, "problem": str(error)})
        return False
    return True
