"""File descriptors: the limit is raised at the start, and how many connections it allows."""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger(__name__)

# A connection has its socket, and the pidfd of the process that connected.
DESCRIPTORS_PER_CONNECTION = 2
# For what the agent itself opens: /proc, ledger, leases, the kubelet, the metrics' connections, the
# owners' pidfds.
RESERVED_DESCRIPTORS = 256
MAX_CONNECTIONS = 512
MIN_CONNECTIONS = 16
WANTED_DESCRIPTORS = RESERVED_DESCRIPTORS + DESCRIPTORS_PER_CONNECTION * MAX_CONNECTIONS


def raised_limit() -> int:
    """Raise the soft limit of this process's descriptors to what is wanted, or as far as the hard limit allows.

    Returns:
        The limit in force.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= WANTED_DESCRIPTORS:
        return WANTED_DESCRIPTORS
    wanted = WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(WANTED_DESCRIPTORS, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def connections_allowed(limit: int) -> int:
    """How many connections a limit of descriptors allows beside the agent's own files.

    Example:
        >>> connections_allowed(20_000), connections_allowed(1024), connections_allowed(64)
        (512, 384, 16)
    """
    free = (limit - RESERVED_DESCRIPTORS) // DESCRIPTORS_PER_CONNECTION
    return max(MIN_CONNECTIONS, min(MAX_CONNECTIONS, free))


def allowed_connections() -> int:
    """How many connections this process may have, after its limit was raised."""
    limit = raised_limit()
    allowed = connections_allowed(limit)
    if allowed < MAX_CONNECTIONS:
        words = {"limit": limit, "wanted": WANTED_DESCRIPTORS, "connections": allowed}
        logger.warning("fewer connections: the hard limit of open files (RLIMIT_NOFILE) is low", extra=words)
    return allowed
