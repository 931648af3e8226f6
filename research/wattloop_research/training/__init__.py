"""Series of runs in one training, measured and dumped in Perseus' form: plans of a folder, or power limits."""

from collections.abc import Mapping
from typing import Any

from wattloop.errors import InputError, UsageError
from wattloop.pipeline.plan_source import BASELINE_VARIABLE, PLANS_VARIABLE
from wattloop_research.training.baseline import LimitBaseline
from wattloop_research.training.plan_folder import PlanFolder
from wattloop_research.training.run_dump import RunDump
from wattloop_research.training.run_series import MAX_ITERATIONS, MeasuredRuns

__all__ = ["LimitBaseline", "PlanFolder", "RunDump", "series_of_job"]

LIMITS_VARIABLE = "WATTLOOP_PIPELINE_BASELINE_LIMITS"
ITERATIONS_VARIABLE = "WATTLOOP_PIPELINE_PLAN_ITERATIONS"
FOLLOWING_VARIABLE = "WATTLOOP_PIPELINE_PLANS_THEN"
MAX_DIGITS = 7


def series_of_job(variables: Mapping[str, str]) -> MeasuredRuns:
    """The folder of plans, or the baseline, of a job that names one of them.

    Raises:
        UsageError: It names both, or a value is not valid.
        InputError: A variable has another form.
    """
    plans, method = variables.get(PLANS_VARIABLE, ""), variables.get(BASELINE_VARIABLE, "")
    if plans and method:
        raise UsageError(
            f"{PLANS_VARIABLE}: found together with {BASELINE_VARIABLE}, expected one of them: a power limit changes "
            "the clocks of a plan"
        )
    options: dict[str, Any] = {}
    if text := variables.get(ITERATIONS_VARIABLE, ""):
        if not text.isdecimal() or len(text) > MAX_DIGITS:
            raise InputError(ITERATIONS_VARIABLE, repr(text)[:40], f"1 to {MAX_ITERATIONS} iterations")
        options["iterations"] = int(text)
    if then := variables.get(FOLLOWING_VARIABLE, ""):
        options["then"] = then
    if plans:
        return PlanFolder(plans, **options)
    if text := variables.get(LIMITS_VARIABLE, ""):
        numbers = text.split(",")
        if not all(number.isdecimal() and len(number) <= MAX_DIGITS for number in numbers):
            raise InputError(LIMITS_VARIABLE, repr(text)[:40], "limits in whole watts, separated by commas")
        options["limits"] = [int(number) for number in numbers]
    return LimitBaseline(method, **options)
