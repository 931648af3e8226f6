"""`wattloop validate`: checks manifests as the API server would, without one."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from wattloop.commands.contract import Command
from wattloop_operator.api.kinds import Kind
from wattloop_operator.api.manifests import Checked, check_file
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.engine.unsupported import unsupported

EXIT_PROBLEMS = 2


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="manifests in YAML or JSON; - reads standard input")
    parser.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="text: a line a manifest or problem (default); json: one object with all of them",
    )


def _run(arguments: argparse.Namespace) -> int:
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


COMMAND = Command(
    summary="check manifests against the API's schema and rules, without a cluster",
    description="Checks RecurringTrainingJobs and Wattloop's other kinds as the API server would: schema, unknown "
    "fields, rules across fields, and cron schedules. Every problem names file, line, column and field, what was "
    "found and what would be right. Says, too, where a job that is right would be held back, as this version does not "
    "carry out what it asks for. Manifests of other kinds are passed over. Ends with 0 (all right) or 2.",
    example="  wattloop validate examples/digits/job.yaml\n"
    "  kustomize build overlays/production | wattloop validate --format json -",
    configure=_configure,
    run=_run,
)
