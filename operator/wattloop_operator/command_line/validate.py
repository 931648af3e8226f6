"""`wattloop validate`: checks manifests as the API server would, without an API server."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from typing import TYPE_CHECKING

from wattloop.commands.contract import Command

if TYPE_CHECKING:
    from wattloop_operator.api.manifests import CheckResult
    from wattloop_operator.api.schemas import Kind

EXIT_PROBLEMS = 2
NOT_CHECKED = (
    "not checked without a cluster: its quotas, policies and webhooks, and whether what a template names exists; the "
    "operator has the API server check all of it, and says the result in the condition Ready"
)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="manifests in YAML or JSON; - reads standard input")
    parser.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="text: one line for each object or problem (default); json: one JSON object",
    )


def _run(arguments: argparse.Namespace) -> int:
    from wattloop_operator.api.manifests import check_file, check_namespaces

    results = {file: check_file(file, workloads=True) for file in dict.fromkeys(arguments.files)}
    check_namespaces(results)
    if arguments.format == "json":
        json.dump(_as_json(results), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        sys.stdout.writelines(f"{line}\n" for file, result in results.items() for line in _lines(file, result))
        sys.stderr.writelines(f"{line}\n" for line in _unchecked(results))
    return EXIT_PROBLEMS if any(map(_fails, results.values())) else 0


def _fails(result: CheckResult) -> bool:
    """Whether a file has a problem, a job that would never start, or no object, an error for `kubectl apply` too."""
    is_empty = not (result.valid or result.skipped)
    return bool(result.problems) or is_empty or any(map(not_supported, result.valid))


def _lines(file: str, result: CheckResult) -> list[str]:
    lines = [str(problem) for problem in result.problems]
    lines += [f"{file}: {_title(manifest)}: {_verdict(manifest)}" for manifest in result.valid]
    lines += [f"{file}: {title}: skipped, not a kind of Wattloop" for title in result.skipped]
    return lines or [f"{file}: found no manifest, expected at least one"]


def _unchecked(results: dict[str, CheckResult]) -> list[str]:
    """What of the valid jobs is in doubt, and what no check without a cluster knows, a line each."""
    from wattloop_operator.api.recurring_training_job import RecurringTrainingJob

    lines, has_job = [], False
    for file, result in results.items():
        for manifest in result.valid:
            has_job = has_job or isinstance(manifest, RecurringTrainingJob)
            part = _part(manifest)
            lines += [f"{file}: {_title(manifest)}: only {part} were checked"] if part else []
            lines += [f"{file}: {_title(manifest)}: warning: {each}" for each in _warnings(manifest)]
    return [*lines, NOT_CHECKED] if has_job else lines


def _as_json(results: dict[str, CheckResult]) -> dict[str, object]:
    valid = [
        ({"source": file, "manifest": _title(manifest)}, manifest)
        for file, result in results.items()
        for manifest in result.valid
    ]
    return {
        "problems": [dataclasses.asdict(problem) for result in results.values() for problem in result.problems],
        "valid": [name for name, _ in valid],
        "not_supported": [name | {"reason": why} for name, each in valid if (why := not_supported(each))],
        "checked_in_part": [name | {"part": part} for name, each in valid if (part := _part(each))],
        "warnings": [name | {"warning": warning} for name, each in valid for warning in _warnings(each)],
        "skipped": [
            {"source": file, "manifest": title} for file, result in results.items() for title in result.skipped
        ],
    }


def _verdict(manifest: Kind) -> str:
    reason = not_supported(manifest)
    return f"valid, but not supported: {reason}" if reason else "valid"


def _part(manifest: Kind) -> str:
    """What of the workload of a job was checked, as text; empty if all of it was, or if it is no job."""
    from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
    from wattloop_operator.api.workload_checks.jobs import checked_part

    return checked_part(manifest.spec.template) if isinstance(manifest, RecurringTrainingJob) else ""


def _warnings(manifest: Kind) -> list[str]:
    """That nothing of a job passes the batch size to its training, and which of several containers train by default."""
    from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
    from wattloop_operator.api.template_checks import chosen_containers
    from wattloop_operator.reconcile.job.job_conditions import unpassed_batch_size

    if not isinstance(manifest, RecurringTrainingJob):
        return []
    spec = manifest.spec
    chosen = chosen_containers(spec.template.to_wire()) if spec.training_containers is None else ""
    return [text for text in (unpassed_batch_size(spec), chosen) if text]


def not_supported(manifest: Kind) -> str | None:
    """Return why the operator would start no run of a valid object, or None."""
    from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
    from wattloop_operator.api.reporting_source import FILE_NOT_IN_CLUSTER, ReportingSource
    from wattloop_operator.workloads.injection import Injection, TemplateError
    from wattloop_operator.workloads.kinds import kind_of_template
    from wattloop_operator.workloads.kueue import check_queue_labels
    from wattloop_operator.workloads.workload_manifest import requested_devices

    if not isinstance(manifest, RecurringTrainingJob):
        return None
    if manifest.spec.reporting.source is ReportingSource.FILE:
        return FILE_NOT_IN_CLUSTER
    template = manifest.spec.template
    try:
        requested_devices(manifest)
        check_queue_labels(template)
        kind_of_template(template).spec(template, Injection(training_containers=manifest.spec.training_containers))
    except TemplateError as error:
        return str(error)
    return None


def _title(manifest: Kind) -> str:
    namespace = f"{manifest.metadata.namespace}/" if manifest.metadata.namespace else ""
    return f"{manifest.kind} {namespace}{manifest.metadata.name}"


COMMAND = Command(
    description="Checks objects of Wattloop's kinds as the API server would: schema, unknown fields, rules, cron "
    "schedules, and a template's Job and pods. Each problem has its file, line, column and field, the value found and "
    "the value expected. What only a cluster knows, and other kinds than Job outside their pods, is not checked; "
    "stderr says so, and that a job passes its batch size in no argument or variable. The command also reports valid "
    "jobs that the operator would not start, since this version does not support what they request. Objects of other "
    "kinds are skipped. It exits with 0 if all objects are valid and the operator would start all jobs, else with 2.",
    example="  wattloop validate examples/digits/job.yaml\n"
    "  kustomize build overlays/production | wattloop validate --format json -",
    configure=_configure,
    run=_run,
)
