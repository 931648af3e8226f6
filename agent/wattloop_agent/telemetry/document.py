"""Writes docs/metrics.md from the catalogue: ``python -m wattloop_agent.telemetry.document [--check]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wattloop_agent.telemetry.catalogue import CATALOGUE, Metric

PATH = Path(__file__).parents[3] / "docs" / "metrics.md"
HEAD = """\
# The agent's metrics

Generated from `agent/wattloop_agent/telemetry/catalogue.py` by `make generate`; `make lint` holds the two equal.

Served at `/metrics` of `--metrics-bind`. Units are base units and stand in the name. `UUID`, `modelName` and `Hostname`
are spelt as DCGM's exporter spells them, so that series join:

    wattloop_gpu_energy_joules_total * on (UUID) group_left () DCGM_FI_DEV_GPU_UTIL

Energy of pods has `pod`, `namespace` and `container` as DCGM's exporter has them, for containers that have a GPU now;
`shared="true"` says that others could use the GPU too: do not add those up. Ended ones go to the operator's history.

A value that a GPU does not have is absent, never zero. Power is at most `--sample-interval` old, a GPU's energy at most
`--counter-interval`, limits and clocks a second (the limit asked for, where the one in force did not change, five), the
energy of pods some three seconds; `wattloop_agent_reading_age_seconds` says how old the readings are. An alert on it,
on `wattloop_agent_ledger_problem > 0` and on `wattloop_agent_leases_releasing > 0`, each for a minute, covers what a
person has to look at.

| metric | kind | labels | meaning |
|---|---|---|---|
"""


def document() -> str:
    """The page."""
    return HEAD + "".join(_row(metric) for metric in CATALOGUE)


def _row(metric: Metric) -> str:
    name = f"{metric.name}_total" if metric.kind == "counter" else metric.name
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
    return f"| `{name}` | {metric.kind} | {labels} | {metric.help} |\n"


def main() -> int:
    """Write the page, or with ``--check`` say whether it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is not up to date")
    if not parser.parse_args().check:
        PATH.write_text(document(), encoding="utf-8")
        return 0
    if PATH.exists() and PATH.read_text(encoding="utf-8") == document():
        return 0
    sys.stderr.write(f"{PATH} is not what the catalogue says; run make generate\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
