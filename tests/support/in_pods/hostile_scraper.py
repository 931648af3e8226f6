"""A hostile scraper of the agent's metrics port: ``python hostile_scraper.py HOST PORT --seconds S``.

Keeps as many silent connections open as it gets, a half request on every other one. It prints one JSON object: how many
connections were opened, and how many ended.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import sys
import time

CONNECTIONS = 200
HALF_REQUEST = b"GET /metrics HTTP/1.1\r\nX-Part: "
CONNECT_SECONDS = 1.0
PAUSE_SECONDS = 0.05


def main() -> int:
    """Attack for so long."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    opened = ended = failed = 0
    connections: list[socket.socket] = []
    deadline = time.monotonic() + arguments.seconds
    while time.monotonic() < deadline:
        while len(connections) < CONNECTIONS and time.monotonic() < deadline:
            try:
                connection = socket.create_connection((arguments.host, arguments.port), CONNECT_SECONDS)
            except OSError:
                failed += 1
                break
            connection.setblocking(False)
            connections.append(connection)
            opened += 1
            if opened % 2:
                with contextlib.suppress(OSError):
                    connection.send(HALF_REQUEST)
        alive = [each for each in connections if not _has_ended(each)]
        ended += len(connections) - len(alive)
        connections = alive
        time.sleep(PAUSE_SECONDS)
    sys.stdout.write(json.dumps({"opened": opened, "ended": ended, "failed": failed}) + "\n")
    return 0


def _has_ended(connection: socket.socket) -> bool:
    try:
        ended = connection.recv(4096) == b""
    except BlockingIOError:
        return False
    except OSError:
        ended = True
    if ended:
        connection.close()
    return ended


if __name__ == "__main__":
    sys.exit(main())
