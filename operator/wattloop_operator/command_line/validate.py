"""Options of `wattloop validate`."""

from __future__ import annotations

import argparse

from wattloop.commands.contract import Command, Deferred


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="manifests in YAML or JSON; - reads standard input")
    parser.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="text: one line for each object or problem (default); json: one JSON object",
    )


COMMAND = Command(
    description="Checks objects of Wattloop's kinds as the API server would: schema, unknown fields, rules and cron "
    "schedules. Each problem has its file, line, column and field, the value found and the value expected. The command "
    "also reports valid jobs that the operator would not start, since this version does not support what they request. "
    "Objects of other kinds are skipped. It exits with 0 if all objects are valid, else with 2.",
    example="  wattloop validate examples/digits/job.yaml\n"
    "  kustomize build overlays/production | wattloop validate --format json -",
    configure=_configure,
    run=Deferred("wattloop_operator.commands.validate:run"),
)
