"""The liveness probe of the power controller's container, which has no port.

    python -m wattloop_agent.power_controller.probe SOCKET

It ends with 0 if the power controller answers a request on its socket, and otherwise with 1 and the reason.
"""

import socket
import sys

from wattloop_agent.json_lines import encoded

# The container's probe gives it five seconds.
ANSWER_SECONDS = 4.0


def main() -> int:
    """Send one request, which changes nothing and is no heartbeat."""
    (path,) = sys.argv[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ANSWER_SECONDS)
            connection.connect(path)
            connection.sendall(encoded({"verb": "list"}))
            if connection.recv(1):
                return 0
        problem = "it has closed the connection"
    except OSError as error:
        problem = str(error)
    sys.stderr.write(f"{path}: the power controller does not answer: {problem}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
