"""Defects that each fuzz target must find within a minute, and the command that measures how long it takes.

python -m support.fuzzing.planted [TARGET …]
"""

import ast
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from support.fuzzing.campaign import open_target
from support.fuzzing.mutation import mutations
from support.fuzzing.target import Target
from wattloop.files.csv_table import Row
from wattloop.pipeline import rank_plan_file
from wattloop.pipeline.directives import AllowedClocks
from wattloop.pipeline.plan_messages import PLAN, Directive
from wattloop_operator.api import template_checks
from wattloop_operator.cluster.informer import stored_parts
from wattloop_operator.reconcile.pipeline import given_plan
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineFrontier, PipelineState
from wattloop_operator.reconcile.pipeline.registrations import Registrar
from wattloop_operator.reporting import pipeline_commits

SEED = 20261123
MAX_SECONDS = 60.0


@dataclass(frozen=True)
class PlantedDefect:
    """A part of the product that is replaced by one with a defect.

    Attributes:
        target: The target that must find it.
        owner: Module or class of the part.
        replacement: The part with the defect.
    """

    target: str
    name: str
    owner: object
    attribute: str
    replacement: object

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Have the defect in the product."""
        with mock.patch.object(self.owner, self.attribute, self.replacement):
            yield


def _any_frontier(state: PipelineState) -> PipelineFrontier | None:
    """The newest frontier, although the points of the directive may be those of the one before."""
    return state.frontier if state.directive.mode == PLAN and state.directive.point is not None else None


def _json(data: bytes, _max_bytes: int = 0) -> Any:
    return json.loads(data)


def _literal(text: str, _source: str) -> Any:
    return ast.literal_eval(text)


def _float(row: Row, column: str, **_: object) -> float:
    return float(row.text(column))


def _nothing(*_: object) -> None:
    """No check."""


DEFECTS = (
    PlantedDefect("plan-service", "a plan that is replaced as a rank finishes", PipelineState, "running_frontier",
                  property(_any_frontier)),
    PlantedDefect("plan-service", "implausible energies", pipeline_commits, "check_plausible", _nothing),
    PlantedDefect("plan-service", "ranks that contradict each other", Registrar, "_conflict", _nothing),
    PlantedDefect("directives", "knobs of other instructions", Directive, "check", _nothing),
    PlantedDefect("directives", "clocks that are not allowed", AllowedClocks, "refusal", lambda *_: ""),
    PlantedDefect("templates", "no bound on levels", template_checks, "_is_deeper", lambda *_: False),
    PlantedDefect("templates", "Python's parser in the watch", stored_parts, "parse", _json),
    PlantedDefect("frequency-plans", "clocks that GPUs lack", given_plan, "_check_clocks", _nothing),
    PlantedDefect("frequency-plans", "plans of other instructions", given_plan, "_check_instructions", _nothing),
    PlantedDefect("plan-files", "Python's parser for plans", rank_plan_file, "parse_literal", _literal),
    PlantedDefect("plan-files", "numbers that are not finite", Row, "number", _float)
)  # fmt: skip


def failing_input(target: Target, max_seconds: float = MAX_SECONDS) -> bytes:
    """The first mutation that shows a planted defect.

    Args:
        max_seconds: Limit in processor time, which hardly depends on what else the machine does.

    Raises:
        AssertionError: None did in this time.
    """
    end = time.process_time() + max_seconds
    for data in mutations(target, SEED):
        try:
            target.check(data)
        except Exception:  # noqa: BLE001 - a planted defect may raise anything
            return data
        if time.process_time() >= end:
            break
    raise AssertionError(f"the planted defect was not found in {max_seconds:g} s")


def main(names: Sequence[str]) -> int:
    """Print a table of the seconds of processor time and on the clock; returns 1 if a defect was not found in time."""
    missed = 0
    for each in DEFECTS:
        if names and each.target not in names:
            continue
        target = open_target(each.target)
        began, used = time.monotonic(), time.process_time()
        try:
            with each.planted():
                failing_input(target)
            found = f"{time.process_time() - used:.1f} | {time.monotonic() - began:.1f}"
        except AssertionError as error:
            found, missed = f"{error} |", 1
        finally:
            target.close()
        sys.stdout.write(f"| {each.target} | {each.name} | {found} |\n")
        sys.stdout.flush()
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
