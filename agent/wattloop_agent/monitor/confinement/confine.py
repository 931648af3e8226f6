"""Confines the monitor as far as the kernel supports it, and logs the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from wattloop_agent.monitor.confinement.landlock import deny_reads_below
from wattloop_agent.monitor.confinement.seccomp import deny_other_processes

logger = logging.getLogger(__name__)


def confine(pod_logs: Path | None) -> None:
    """Deny this process access to other processes and to pods' logs.

    Call it before starting threads.

    A kernel that supports only one of the two must not leave a node's GPUs without an agent, so a
    failure is logged.

    Args:
        pod_logs: The kubelet's folder of pod logs; None: the process does not use it.
    """
    reads_denied = pod_logs is None or _try("contents of pods' logs", lambda: deny_reads_below(pod_logs))
    if _try("signals, memory and limits of other processes", deny_other_processes) and reads_denied:
        logger.info("the monitor is confined")


def _try(access: str, restrict: Callable[[], None]) -> bool:
    try:
        restrict()
    except OSError as error:
        logger.warning("the kernel does not confine the monitor", extra={"access": access, "error": str(error)})
        return False
    return True
