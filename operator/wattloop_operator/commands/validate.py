"""`wattloop validate`: checks manifests as the API server would, without one."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from wattloop_operator.api.kinds import Kind
from wattloop_operator.api.manifests import Checked, check_file
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.reconcile.job.unsupported import unsupported

EXIT_PROBLEMS = 2


def run(arguments: argparse.Namespace) -> int:
    """Carry out ``wattloop validate``."""
    results = {file: check_file(file) for file in dict.fromkeys(arguments.files)}
    if arguments.format == "json":
        json.dump(_as_json(results), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        sys.stdout.writelines(f"{line}\n" for file, checked in results.items() for line in _lines(file, checked))
    return EXIT_PROBLEMS if any(checked.problems or _is_empty(checked) for checked in results.values()) else 0


def _is_empty(checked: Checked) -> bool:
    """Whether a file holds nothing at all: as with `kubectl apply`, it must not be taken for checked."""
    return not (checked.problems or checked.accepted or checked.passed_over)


def _lines(file: str, checked: Checked) -> list[str]:
    lines = [str(problem) for problem in checked.problems]
    lines += [f"{file}: {_title(manifest)}: {_verdict(manifest)}" for manifest in checked.accepted]
    lines += [f"{file}: {title}: passed over, not a kind of Wattloop" for title in checked.passed_over]
    return lines or [f"{file}: found no manifest, expected at least one"]


def _as_json(results: dict[str, Checked]) -> dict[str, object]:
    return {
        "problems": [dataclasses.asdict(problem) for checked in results.values() for problem in checked.problems],
        "accepted": [
            {"source": file, "manifest": _title(manifest)}
            for file, checked in results.items()
            for manifest in checked.accepted
        ],
        "held_back": [
            {"source": file, "manifest": _title(manifest), "why": why}
            for file, checked in results.items()
            for manifest in checked.accepted
            for why in [_held_back(manifest)]
            if why
        ],
        "passed_over": [
            {"source": file, "manifest": title} for file, checked in results.items() for title in checked.passed_over
        ],
    }


def _verdict(manifest: Kind) -> str:
    why = _held_back(manifest)
    return f"right, but held back: {why}" if why else "right"


def _held_back(manifest: Kind) -> str | None:
    """Why the operator would start nothing of an object that the API server takes."""
    return unsupported(manifest.spec) if isinstance(manifest, RecurringTrainingJob) else None


def _title(manifest: Kind) -> str:
    namespace = f"{manifest.metadata.namespace}/" if manifest.metadata.namespace else ""
    return f"{manifest.kind} {namespace}{manifest.metadata.name}"
