"""Replaces runc for pods of the runtime class `nvidia`, as NVIDIA's container runtime does.

    python gpu_runtime.py GIVEN RUNC_ARGUMENT…

A container whose environment requests GPUs (NVIDIA_VISIBLE_DEVICES) gets the content of the JSON file
GIVEN: the driver's library and the simulated devices. It needs only the standard library.
"""

import json
import os
import shutil
import sys
from pathlib import Path

_ASKS = "NVIDIA_VISIBLE_DEVICES="
_NOTHING = {"", "none", "void"}


def main() -> None:
    """Edits the bundle's configuration where a container is about to be made, and becomes runc."""
    given, *arguments = sys.argv[1:]
    if "create" in arguments and "--bundle" in arguments:
        bundle = Path(arguments[arguments.index("--bundle") + 1]) / "config.json"
        configuration = json.loads(bundle.read_text(encoding="utf-8"))
        asked = [each.removeprefix(_ASKS) for each in configuration["process"].get("env", []) if each.startswith(_ASKS)]
        if asked and asked[-1] not in _NOTHING:
            give(configuration, json.loads(Path(given).read_text(encoding="utf-8")))
            bundle.write_text(json.dumps(configuration), encoding="utf-8")
    runc = shutil.which("runc") or "/usr/sbin/runc"
    os.execv(runc, [runc, *arguments])


def give(configuration: dict, given: dict) -> None:
    """Adds mounts and variables to a container's configuration."""
    configuration["process"]["env"] += [f"{name}={value}" for name, value in given["environment"].items()]
    for mount in given["mounts"]:
        options = ["rbind", "rprivate", "nosuid", "nodev", "ro" if mount["read_only"] else "rw"]
        configuration["mounts"].append(
            {"destination": mount["container_path"], "type": "bind", "source": mount["host_path"], "options": options}
        )


if __name__ == "__main__":
    main()
