"""``python -m nvml_simulator.contract``: holds the NVML of this machine to the table; nothing is ever set."""

from __future__ import annotations

import ctypes
import sys

from nvml_simulator.contract.codes import SUCCESS
from nvml_simulator.contract.comparison import differences


def main() -> int:
    """Prints how the library that the dynamic linker finds differs from the table; 1 where there is none to load."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        print(f"no NVML to compare with: {error}", file=sys.stderr)
        return 1
    if (code := library.nvmlInit_v2()) != SUCCESS:
        print(f"nvmlInit_v2 answered {code}", file=sys.stderr)
        return 1
    found = list(differences(library))
    print("\n".join(found) or "no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
