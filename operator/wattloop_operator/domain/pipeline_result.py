"""What an attempt that ran as a pipeline did: the frequency plan at its end, planned and realised."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass

from wattloop_operator.api.power_fields import AppliedFrequencyPlan, PlanSaving

MAX_CHARACTERS = 1024


@dataclass(frozen=True, config=ConfigDict(strict=True, allow_inf_nan=False, defer_build=True))
class PipelineResult:
    """The frequency plan of an attempt's pipeline at its end.

    Times and energies are of an iteration of one pipeline. Savings and slowdowns are those measured against free
    clocks, with their standard errors in points of percent, and those planned against maximum clocks. A saving is
    negative if the plan takes more energy, a slowdown if it is faster. None: not known.

    Attributes:
        mode: What the ranks did at the end.
        plan: Name of the FrequencyPlan; empty if there is none.

    Raises:
        ValueError: A value is invalid.

    Example:
        >>> text = PipelineResult("Plan", "gpt-1", planned_seconds=0.5).to_json()
        >>> text
        '{"mode":"Plan","plan":"gpt-1","planned_seconds":0.5}'
        >>> PipelineResult.from_json(text).planned_seconds
        0.5
    """

    mode: Literal["Free", "Profile", "Plan"]
    plan: str = ""
    planned_seconds: float | None = None
    planned_joules: float | None = None
    realised_seconds: float | None = None
    realised_joules: float | None = None
    saving_percent: float | None = None
    slowdown_percent: float | None = None
    saving_error_percent: float | None = None
    slowdown_error_percent: float | None = None
    planned_saving_percent: float | None = None
    planned_slowdown_percent: float | None = None

    @classmethod
    def of_status(cls, applied: AppliedFrequencyPlan) -> PipelineResult:
        """The part of the result that is in the status of a TrainingRecurrence."""
        measured = {name: getattr(applied, name) for name in PlanSaving.model_fields}
        # Not strict: decimals become floats.
        return RESULT.validate_python({"mode": applied.mode, "plan": applied.name, **measured}, strict=False)

    @classmethod
    def from_json(cls, text: str) -> PipelineResult:
        """Read what `to_json` wrote; members that a newer version has added are ignored.

        Raises:
            ValueError: The text is not such JSON.
        """
        if len(text) > MAX_CHARACTERS:
            raise ValueError(f"{len(text)} characters: expected at most {MAX_CHARACTERS}")
        return RESULT.validate_json(text)

    def to_json(self) -> str:
        """Compact JSON of the members that are known."""
        return RESULT.dump_json(self, exclude_defaults=True).decode()


RESULT = TypeAdapter(PipelineResult)
