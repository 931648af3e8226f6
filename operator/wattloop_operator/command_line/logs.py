"""`wattloop logs`: what Wattloop reads from a log that exists, and what it passes over and why."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from wattloop.commands.contract import Command
from wattloop.errors import InputError, UsageError
from wattloop.printable import printable, quoted
from wattloop_operator.command_line.gpu_options import positive_integer

if TYPE_CHECKING:
    from wattloop_operator.api.objective import Target
    from wattloop_operator.api.reporting_source import Reporting
    from wattloop_operator.domain.read_output import NumberedLine, ReadOutput
    from wattloop_operator.domain.training_output import Evaluation

EXIT_NOTHING_READ = 1
READ_BYTES = 256 * 1024
# Of a log without an end, such as a pipe from a process that never stops.
MAX_LOG_BYTES = 1024**3
# Beyond any value, for a metric whose threshold is not given: none reaches it, and none is a fraction of it.
NO_THRESHOLD = "999999999999999"


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a training's output; - reads standard input")
    whose = parser.add_mutually_exclusive_group(required=True)
    whose.add_argument("--metric", metavar="NAME", help="name of the metric in the output")
    whose.add_argument(
        "--job",
        metavar="MANIFEST",
        help="a manifest with one RecurringTrainingJob, whose target and reporting are used",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="X",
        help="of the target: a value that meets it before any epoch is held back, and with at most 1 no percentage is "
        "read (default: without a target)",
    )
    parser.add_argument("--direction", choices=("Maximize", "Minimize"), help="of the target (default: Maximize)")
    parser.add_argument(
        "--source",
        choices=("Logs", "File"),
        help="Logs: the file has a training's output (default, unless the manifest has File); File: it has rows, JSON "
        "lines or a table of comma-separated values with a head",
    )
    parser.add_argument("--pattern", metavar="REGEX", help="spec.reporting.pattern: a pattern to try")
    parser.add_argument(
        "--max-epochs", type=positive_integer, metavar="N", help="objective.maxEpochs (default: without a limit)"
    )
    parser.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="text: a line for each evaluation and each reason (default); json: one JSON object",
    )


def _check(arguments: argparse.Namespace) -> None:
    if arguments.job is not None:
        given = [name for name in ("threshold", "direction", "max_epochs") if getattr(arguments, name) is not None]
        if given:
            option = given[0].replace("_", "-")
            raise UsageError(f"--{option} and --job exclude each other: the manifest has it; leave one out")
    if arguments.pattern is not None and arguments.source == "File":
        raise UsageError("--pattern and --source File exclude each other: rows name their values; leave one out")
    if arguments.direction is not None and arguments.threshold is None:
        raise UsageError("--direction needs --threshold: without a threshold no value meets the target")


def _run(arguments: argparse.Namespace) -> int:
    from wattloop_operator.domain.bounded_output import SlowPatternError
    from wattloop_operator.domain.metric_rows import reader_of
    from wattloop_operator.domain.read_output import read_output
    from wattloop_operator.domain.training_output import PatternError

    reporting, target, max_epochs = _wanted(arguments)
    try:
        reader = reader_of(reporting, target, max_epochs=max_epochs)
        found = read_output(reporting, target, max_epochs, reader, _lines(arguments.file))
    except PatternError as error:
        raise UsageError(f"--pattern: {error}") from None
    except SlowPatternError as error:
        sys.stderr.write(f"wattloop logs: {error}\n")
        return EXIT_NOTHING_READ
    name = target.metric
    if arguments.format == "json":
        json.dump(_as_json(name, found), sys.stdout, indent=2, allow_nan=False)
        sys.stdout.write("\n")
    else:
        sys.stdout.writelines(f"{printable(line, 4096)}\n" for line in _as_text(name, target, found))
    return 0 if found.counted else EXIT_NOTHING_READ


def _wanted(arguments: argparse.Namespace) -> tuple[Reporting, Target, float]:
    from pydantic import ValidationError

    from wattloop_operator.api.objective import Target
    from wattloop_operator.api.reporting_source import Reporting, ReportingSource

    if arguments.job is not None:
        spec = _job_of(arguments.job).spec
        is_file = arguments.source == "File" or (arguments.source is None and spec.reporting.source == "File")
        update: dict[str, object] = {"source": ReportingSource.FILE if is_file else ReportingSource.LOGS}
        if arguments.pattern is not None:
            update |= {"source": ReportingSource.LOGS, "pattern": arguments.pattern}
        target = spec.objective.target
        return spec.reporting.model_copy(update=update), target, spec.objective.max_epochs
    threshold = NO_THRESHOLD if arguments.threshold is None else repr(arguments.threshold)
    named = {} if arguments.pattern is None else {"pattern": arguments.pattern}
    try:
        reporting = Reporting.model_validate({"source": arguments.source or "Logs", **named})
        target = Target.model_validate(
            {"metric": arguments.metric, "threshold": threshold, "direction": arguments.direction or "Maximize"}
        )
    except ValidationError as error:
        problem = error.errors()[0]
        option = {"metric": "--metric", "pattern": "--pattern"}.get(str(problem["loc"][0]), "--threshold")
        raise UsageError(f"{option}: found {quoted(str(problem['input']))}: {problem['msg']}") from None
    return reporting, target, arguments.max_epochs or math.inf


def _job_of(path: str) -> Any:
    from wattloop_operator.api.manifests import check_file
    from wattloop_operator.api.recurring_training_job import RecurringTrainingJob

    checked = check_file(path)
    if checked.problems:
        raise UsageError("\n".join(str(problem) for problem in checked.problems))
    jobs = [each for each in checked.valid if isinstance(each, RecurringTrainingJob)]
    if len(jobs) != 1:
        names = ", ".join(each.metadata.name for each in jobs) or "none"
        raise InputError(path, f"RecurringTrainingJobs: {names}", "exactly one")
    return jobs[0]


def _lines(path: str) -> Iterator[NumberedLine]:
    from wattloop.files.reading import special_file_kind

    if path == "-":
        yield from _lines_of(path, sys.stdin.buffer)
        return
    kind = special_file_kind(path)
    if kind is not None:
        raise InputError(path, kind, "a file, or - for standard input")
    try:
        with Path(path).open("rb", buffering=0) as stream:
            yield from _lines_of(path, stream)
    except OSError as error:
        raise InputError(path, os.strerror(error.errno or 0), "a file that can be read") from error


def _lines_of(path: str, stream: BinaryIO | Any) -> Iterator[NumberedLine]:
    from wattloop_operator.domain.read_output import LineSplitter

    lines, left = LineSplitter(), MAX_LOG_BYTES
    while data := stream.read(READ_BYTES):
        yield from lines.feed(data)
        left -= len(data)
        if left <= 0:
            sys.stderr.write(f"wattloop logs: {path}: only the first {MAX_LOG_BYTES // 1024**2} MiB were read\n")
            return
    yield from lines.rest()


def _as_text(name: str, target: Target, found: ReadOutput) -> Iterator[str]:
    for evaluation in found.evaluations:
        is_reached = target.run_target.reached_by(evaluation.metric)
        reaches = f" (meets the target {target.threshold})" if is_reached else ""
        yield f"line {evaluation.number}: {evaluation.text(name)}{reaches}"
    if found.counted > len(found.evaluations):
        yield f"and {found.counted - len(found.evaluations)} further evaluations"
    for each in found.passed_over:
        others = f", and {each.lines - 1} more up to line {each.last} likewise" if each.lines > 1 else ""
        yield f"passed over: line {each.first}{others}: {each.text!r} {each.reason}"
    if found.other_reasons:
        yield f"passed over: {found.other_reasons} further lines"
    lines = f"{found.lines} line{'' if found.lines == 1 else 's'}"
    if found.counted:
        yield f"{found.counted} evaluation{'' if found.counted == 1 else 's'} of {name} in {lines}"
        if found.reading.doubt:
            yield found.reading.doubt
        return
    why = "" if found.passed_over else found.reading.unread_at_end or f"no line has {name} and a number"
    yield f"no evaluation of {name} in {lines}{f': {why}' if why else ''}"
    for proposed in found.proposed:
        values = [*(f"{each.metric:g}" for each in proposed.reads), *(["…"] if proposed.has_more else [])]
        in_yaml = proposed.pattern.replace("'", "''")
        yield f"spec.reporting.pattern: '{in_yaml}' would read {', '.join(values)}"
    if len(found.proposed) > 1:
        yield "use the one whose values are the metric"


def _as_json(name: str, found: ReadOutput) -> dict[str, object]:
    return {
        "metric": name,
        "lines": found.lines,
        "evaluations": [{"line": each.number, **_evaluation(each)} for each in found.evaluations],
        "evaluations_in_all": found.counted,
        "passed_over": [
            {"reason": each.reason, "lines": each.lines, "first": each.first, "last": each.last, "text": each.text}
            for each in found.passed_over
        ],
        "passed_over_for_further_reasons": found.other_reasons,
        "notice": found.reading.unread_at_end or found.reading.doubt,
        "proposed_patterns": [
            {"pattern": each.pattern, "reads": [_evaluation(read) for read in each.reads], "reads_more": each.has_more}
            for each in found.proposed
        ],
    }


def _evaluation(found: Evaluation) -> dict[str, object]:
    # JSON has no NaN and no infinity.
    metric = found.metric if math.isfinite(found.metric) else str(found.metric)
    return {"epoch": found.epoch, "metric": metric, "text": found.line.strip()[:200]}


COMMAND = Command(
    description="Shows what Wattloop reads from the output of a training, with the reader of spec.reporting.source "
    "Logs (or File): each evaluation that counts, and the lines that name the metric and were passed over, with the "
    "reason. If none could be read without guessing, it proposes patterns for spec.reporting.pattern, with the values "
    f"that each would read. At most the first {MAX_LOG_BYTES // 1024**2} MiB are read. It exits with 0 if an "
    "evaluation counts, with 1 if none does.",
    example="  wattloop logs train.log --metric val_acc --threshold 0.9\n"
    "  kubectl logs digits-0-abcde | wattloop logs - --job job.yaml --format json\n"
    r"  wattloop logs train.log --metric acc --pattern 'top-1 (?P<metric>\S+)'",
    configure=_configure,
    run=_run,
    check=_check,
)
