"""Writes commands.md from the parsers of the subcommands, api.md from the schemas, metrics.md from the catalogue."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import api_page

from wattloop.commands.contract import GROUP, subcommand_parser
from wattloop.commands.main import EVERY_DAY, LABORATORY, SERVICES
from wattloop_agent.telemetry.catalogue import CATALOGUE

FOLDER = Path(__file__).parent
HEAD = """\
<!-- Generated from the parsers of the commands by `make generate`; do not edit. -->
# Commands

`wattloop COMMAND --help` prints what this page has. As a plugin of kubectl the program is `kubectl wattloop`.
"""
METRICS_HEAD = """\
# The agent's metrics

Generated from `agent/wattloop_agent/telemetry/catalogue.py` by `make generate`; `make lint` checks that
both agree.

The agent serves `/metrics` at `--metrics-bind`. Names contain the base unit. The labels `UUID`, `modelName`
and `Hostname` are spelled as by DCGM's exporter, so that series can be joined:

    wattloop_gpu_energy_joules_total * on (UUID) group_left () DCGM_FI_DEV_GPU_UTIL

Energy of pods has the labels `pod`, `namespace` and `container` of DCGM's exporter, for containers that have a
GPU now. Do not add up series with `shared="true"`: other containers could use the same GPU. The operator's
history has the energy of ended containers.

A value that a GPU does not report is absent, never zero. Maximum ages: power `--sample-interval`, energy of a
GPU `--counter-interval`, limits and clocks 1 s (a requested limit, if the enforced limit did not change, 5 s),
energy of pods about 3 s. `wattloop_agent_sample_age_seconds` is the age of the last samples. Three alerts, each
for a minute, cover all problems that need attention: on that metric, on `wattloop_agent_ledger_problem > 0` and
on `wattloop_agent_leases_releasing > 0`.

| metric | kind | labels | meaning |
|---|---|---|---|
"""
PARTS = {
    "Every day": EVERY_DAY,
    "Laboratory": LABORATORY,
    "Completion of a shell": ("completion",),
    "Services, which the chart starts": SERVICES,
}


def commands() -> str:
    """The text of the page of the commands."""
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    parts = [HEAD]
    for part, names in PARTS.items():
        parts.append(f"## {part}\n")
        for name in names:
            parts += _command(subcommand_parser(f"wattloop {name}", found[name].load()), level=3)
    return "\n".join(parts)


def _command(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    yield f"{'#' * level} {parser.prog}\n"
    if parser.description:
        yield f"{_text(parser.description)}\n"
    actions = [action for action in parser._actions if "--help" not in action.option_strings]
    groups = [action for action in actions if isinstance(action, argparse._SubParsersAction)]
    arguments = [action for action in actions if action not in groups and action.help != argparse.SUPPRESS]
    if arguments:
        yield "| argument | meaning |"
        yield "|---|---|"
        for action in arguments:
            yield f"| `{_argument(action)}` | {_text((action.help or '') % _values(parser, action))} |"
        yield ""
    for group in groups:
        for child in group.choices.values():
            yield from _command(child, level + 1)


def _argument(action: argparse.Action) -> str:
    if action.choices is not None and action.metavar is None:
        value = ",".join(str(choice) for choice in action.choices)
    else:
        value = action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar or ())
    value = value or action.dest.upper()
    if not action.option_strings:
        return value
    names = ", ".join(action.option_strings)
    return names if action.nargs == 0 else f"{names} {value}"


def _values(parser: argparse.ArgumentParser, action: argparse.Action) -> dict[str, object]:
    choices = ", ".join(str(choice) for choice in action.choices or ())
    return vars(action) | {"prog": parser.prog, "choices": choices}


def _text(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def metrics() -> str:
    """The page of the agent's metrics."""
    rows = []
    for metric in CATALOGUE:
        name = f"{metric.name}_total" if metric.kind == "counter" else metric.name
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
        rows.append(f"| `{name}` | {metric.kind} | {labels} | {metric.help} |\n")
    return METRICS_HEAD + "".join(rows)


def main() -> int:
    """Write the pages, or only compare them if --check is given; return the exit code."""
    parser = argparse.ArgumentParser(description="Generates the pages of the commands, the API and the metrics.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is out of date")
    check, code = parser.parse_args().check, 0
    pages = {"commands.md": commands(), "api.md": api_page.text(), "metrics.md": metrics()}
    for name, text in pages.items():
        path = FOLDER / name
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{path}: out of date; run make generate\n")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
