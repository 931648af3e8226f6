"""Writes a planning result as the manifest of a FrequencyPlan, for `kubectl apply`."""

from __future__ import annotations

import base64
import json
import re

from wattloop.errors import UsageError
from wattloop_planner.frequency.files.archive import PlanArchive, write_within

MANIFEST = "frequencyplan.json"
# Of the API: 512 KiB as base64.
MAX_ARCHIVE_BYTES = 384 * 1024
# kubectl keeps a copy of the manifest in an annotation, all of which take at most 256 KiB.
MAX_APPLIED_CHARACTERS = 250 * 1024
NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


def check_name(name: str) -> None:
    """Check that an object may have this name.

    Raises:
        UsageError: It may not.
    """
    if NAME.fullmatch(name) is None:
        raise UsageError(
            f"--manifest {name[:80]}: must be the name of an object: up to 253 lower-case letters, digits, - and ."
        )


def plan_manifest(name: str, archive: PlanArchive) -> tuple[str, PlanArchive]:
    """The manifest of a FrequencyPlan, and the archive in it, which has fewer plans if all are too large.

    Raises:
        UsageError: The name is not that of an object.
        InputError: Two plans are too large, or an instruction has an unusual name.
    """
    check_name(name)
    held, data = write_within(archive, MAX_ARCHIVE_BYTES)
    spec = {"gpuProduct": archive.gpu_product} if archive.gpu_product else {}
    document = {
        "apiVersion": "wattloop.dev/v1alpha1",
        "kind": "FrequencyPlan",
        "metadata": {"name": name},
        "spec": {**spec, "archive": base64.b64encode(data).decode("ascii")},
    }
    return json.dumps(document, indent=2) + "\n", held
