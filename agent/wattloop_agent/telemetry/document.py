"""Writes docs/metrics.md from the catalogue: ``python -m wattloop_agent.telemetry.document [--check]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wattloop_agent.telemetry.catalogue import CATALOGUE, Metric

PATH = Path(__file__).parents[3] / "docs" / "metrics.md"
HEAD = """\
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


def document() -> str:
    """Return the page."""
    return HEAD + "".join(_row(metric) for metric in CATALOGUE)


def _row(metric: Metric) -> str:
    name = f"{metric.name}_total" if metric.kind == "counter" else metric.name
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
    return f"| `{name}` | {metric.kind} | {labels} | {metric.help} |\n"


def main() -> int:
    """Write the page, or with ``--check`` return 1 if it is not up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is not up to date")
    if not parser.parse_args().check:
        PATH.write_text(document(), encoding="utf-8")
        return 0
    if PATH.exists() and PATH.read_text(encoding="utf-8") == document():
        return 0
    sys.stderr.write(f"{PATH} does not match the catalogue; run make generate\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
