"""``python -m nvml_simulator.contract``: compares the machine's NVML with the table."""

from __future__ import annotations

import ctypes
import sys

from nvml_simulator.contract.conformance import differences
from nvml_simulator.contract.function_parameters import SUCCESS


def main() -> int:
    """Print how the library of the dynamic linker differs from the table; return 1 without one."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        print(f"no NVML library found: {error}", file=sys.stderr)
        return 1
    if (code := library.nvmlInit_v2()) != SUCCESS:
        print(f"nvmlInit_v2 returned {code}", file=sys.stderr)
        return 1
    found = list(differences(library))
    print("\n".join(found) or "no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
