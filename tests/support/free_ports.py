"""TCP ports of this machine's loopback that nothing else takes before, or between, their uses.

A port that the kernel chooses (bind to port 0) is one of those that it also chooses for outgoing
connections and for the servers of other test processes, so another program can have it a moment
later. These ports are below that range, and each belongs to one test process until it ends.
"""

import atexit
import contextlib
import os
import socket

# Below the kernel's own range (32768 and more) and the NodePorts (30000 to 32767).
_PORTS = range(20_000, 30_000)
# A name of an abstract socket belongs to one process and is free again when the process ends.
_reservations = contextlib.ExitStack()
atexit.register(_reservations.close)
_next_index = os.getpid() * 61 % len(_PORTS)


def free_port() -> int:
    """A port that no program uses, and that no other call returns while this process runs."""
    global _next_index  # noqa: PLW0603
    for _ in _PORTS:
        port = _PORTS[_next_index]
        _next_index = (_next_index + 1) % len(_PORTS)
        if _is_reserved_now(port) and _can_be_bound(port):
            return port
    raise RuntimeError(f"no port from {_PORTS.start} to {_PORTS.stop - 1} is free")


def _is_reserved_now(port: int) -> bool:
    """Reserve the port for this process; False if it is reserved."""
    reservation = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        reservation.bind(f"\0wattloop-test-port-{port}")
    except OSError:
        reservation.close()
        return False
    _reservations.enter_context(reservation)
    return True


def _can_be_bound(port: int) -> bool:
    with contextlib.suppress(OSError), socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("", port))
        return True
    return False
