"""What an attempt that ran as a pipeline did: the frequency plan at its end, planned and realised."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Self

from wattloop_operator.api.applied_plan import AppliedFrequencyPlan

MODES = frozenset({"Free", "Profile", "Plan"})
MAX_CHARACTERS = 1024


@dataclass(frozen=True)
class PipelineResult:
    """The frequency plan of an attempt's pipeline, as the status of its TrainingRecurrence last stated it.

    Times and energies are of an iteration of one pipeline; see `AppliedFrequencyPlan`. None: not known.

    Attributes:
        mode: What the ranks did at the end: Free, Profile or Plan.
        plan: Name of the FrequencyPlan; empty if there is none.
        planned_seconds: Planned time of an iteration.
        planned_joules: Planned energy of an iteration.
        realised_seconds: Realised time of an iteration.
        realised_joules: Realised energy of an iteration.
        saving_percent: Energy saved by measurement against free clocks; negative if the plan takes more.
        slowdown_percent: Time lost likewise; negative if the plan is faster.
        saving_error_percent: Standard error of the saving, in points of percent.
        slowdown_error_percent: Standard error of the slowdown, in points of percent.
        planned_saving_percent: Planned saving against maximum clocks.
        planned_slowdown_percent: Planned slowdown against maximum clocks.

    Raises:
        ValueError: A value is invalid.

    Example:
        >>> text = PipelineResult("Plan", "gpt-1", planned_seconds=0.5).to_json()
        >>> text
        '{"mode":"Plan","plan":"gpt-1","planned_seconds":0.5}'
        >>> PipelineResult.from_json(text).planned_seconds
        0.5
    """

    mode: str
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

    def __post_init__(self) -> None:
        # The database may contain anything.
        if self.mode not in MODES:
            raise ValueError(f"mode {self.mode!r}: expected one of {', '.join(sorted(MODES))}")
        if not isinstance(self.plan, str):
            raise ValueError(f"plan {self.plan!r}: expected a name")  # noqa: TRY004
        for each in fields(self)[2:]:
            value = getattr(self, each.name)
            if value is not None and not (isinstance(value, float) and math.isfinite(value)):
                raise ValueError(f"{each.name} {value!r}: expected a finite number")

    @classmethod
    def of_status(cls, applied: AppliedFrequencyPlan) -> Self:
        """The result in the status of a TrainingRecurrence."""
        planned, realised = applied.planned, applied.realised
        energy = None if realised is None else realised.energy_joules

        def number(value: Decimal | None) -> float | None:
            return None if value is None else float(value)

        return cls(
            mode=applied.mode,
            plan=applied.name,
            planned_seconds=None if planned is None else float(planned.time_seconds),
            planned_joules=None if planned is None else float(planned.energy_joules),
            realised_seconds=None if realised is None else float(realised.time_seconds),
            realised_joules=number(energy),
            saving_percent=number(applied.saving_percent),
            slowdown_percent=number(applied.slowdown_percent),
            saving_error_percent=number(applied.saving_error_percent),
            slowdown_error_percent=number(applied.slowdown_error_percent),
            planned_saving_percent=number(applied.planned_saving_percent),
            planned_slowdown_percent=number(applied.planned_slowdown_percent),
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; members that a newer version has added are ignored.

        Raises:
            ValueError: The text is not such JSON.
        """
        if len(text) > MAX_CHARACTERS:
            raise ValueError(f"{len(text)} characters: expected at most {MAX_CHARACTERS}")
        found = json.loads(text, parse_int=float)
        if not isinstance(found, dict) or "mode" not in found:
            raise ValueError(f"{text!r}: expected an object with a mode")
        return cls(**{each.name: found[each.name] for each in fields(cls) if each.name in found})

    def to_json(self) -> str:
        """Compact JSON of the members that are known."""
        members = {each.name: getattr(self, each.name) for each in fields(self)}
        known = {name: value for name, value in members.items() if value not in (None, "")}
        return json.dumps(known, separators=(",", ":"))
