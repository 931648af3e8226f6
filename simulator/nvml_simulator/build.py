"""``python -m nvml_simulator.build``: builds the simulated NVML if needed and prints its path."""

import sys

from nvml_simulator.compilation import build_library
from wattloop.errors import OperationError


def main() -> int:
    """Print the path of the library; return 1 if the build fails."""
    try:
        print(build_library())
    except OperationError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
