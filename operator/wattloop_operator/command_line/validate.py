"""`wattloop validate`: checks manifests as the API server would, without one."""

from __future__ import annotations

import argparse

from wattloop.commands.contract import Command, Deferred


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="manifests in YAML or JSON; - reads standard input")
    parser.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="text: a line a manifest or problem (default); json: one object with all of them",
    )


COMMAND = Command(
    summary="check manifests against the API's schema and rules, without a cluster",
    description="Checks RecurringTrainingJobs and Wattloop's other kinds as the API server would: schema, unknown "
    "fields, rules across fields, and cron schedules. Every problem names file, line, column and field, what was "
    "found and what would be right. Says, too, where a job that is right would be held back, as this version does not "
    "carry out what it asks for. Manifests of other kinds are passed over. Ends with 0 (all right) or 2.",
    example="  wattloop validate examples/digits/job.yaml\n"
    "  kustomize build overlays/production | wattloop validate --format json -",
    configure=_configure,
    run=Deferred("wattloop_operator.commands.validate:run"),
)
