"""``python -m nvml_simulator PATH``: creates a state file and prints its environment, for a shell or as JSON.

In a shell: ``eval "$(python -m nvml_simulator gpus --count 4)"``.

For programs that must not import this package, such as the operator's local mode, and for users.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from typing import get_args

from nvml_simulator.state_files import Clock, Permission, create, environment
from wattloop.errors import UsageError, WattloopError


def main() -> int:
    """Create the state file; return 1 if that fails, 2 if the arguments are invalid."""
    parser = argparse.ArgumentParser(prog="python -m nvml_simulator", description=__doc__)
    parser.add_argument("path", help="state file to create")
    parser.add_argument("--model", default="A100", help="A40, V100, A100, H100, H200, P100 or K80")
    parser.add_argument("--count", type=int, default=1, help="number of GPUs")
    parser.add_argument("--clock", choices=get_args(Clock), default="wall")
    parser.add_argument("--scale", type=float, default=1.0, help="simulated seconds per real second (clock scaled)")
    parser.add_argument("--seed", type=int, default=0, help="seed of UUIDs and of the counters' start values")
    parser.add_argument("--permission", choices=get_args(Permission), default="root", help="who may change GPUs")
    parser.add_argument("--format", choices=("shell", "json"), default="shell", help="lines that a shell can evaluate")
    arguments = parser.parse_args()
    try:
        path = create(
            arguments.path,
            model=arguments.model,
            count=arguments.count,
            clock=arguments.clock,
            scale=arguments.scale,
            seed=arguments.seed,
            permission=arguments.permission,
        )
    except WattloopError as error:
        sys.stderr.write(f"nvml_simulator: {error}\n")
        return 2 if isinstance(error, UsageError) else 1
    variables = environment(path)
    if arguments.format == "json":
        sys.stdout.write(json.dumps(variables) + "\n")
    else:
        sys.stdout.writelines(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    return 0


if __name__ == "__main__":
    sys.exit(main())
