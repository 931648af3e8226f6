"""Raises the limit on file descriptors, and derives the number of connections from it."""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger(__name__)

# The socket, and the pidfd of the connected process.
DESCRIPTORS_PER_CONNECTION = 2
# For the agent's own files: /proc, ledger, leases, the kubelet, metrics connections, owners'
# pidfds.
RESERVED_DESCRIPTORS = 256
MAX_CONNECTIONS = 512
MIN_CONNECTIONS = 16
WANTED_DESCRIPTORS = RESERVED_DESCRIPTORS + DESCRIPTORS_PER_CONNECTION * MAX_CONNECTIONS


def raised_limit() -> int:
    """Raise this process's soft limit on descriptors, as far as the hard limit allows.

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
    """The number of connections that a descriptor limit allows beside the agent's own files.

    Example:
        >>> connections_allowed(20_000), connections_allowed(1024), connections_allowed(64)
        (512, 384, 16)
    """
    free = (limit - RESERVED_DESCRIPTORS) // DESCRIPTORS_PER_CONNECTION
    return max(MIN_CONNECTIONS, min(MAX_CONNECTIONS, free))


def allowed_connections() -> int:
    """Raise the descriptor limit, and return the number of connections that it allows."""
    limit = raised_limit()
    allowed = connections_allowed(limit)
    if allowed < MAX_CONNECTIONS:
        extra = {"limit": limit, "wanted": WANTED_DESCRIPTORS, "connections": allowed}
        logger.warning("fewer connections: the hard limit of open files (RLIMIT_NOFILE) is low", extra=extra)
    return allowed
