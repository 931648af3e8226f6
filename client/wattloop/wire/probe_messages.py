"""Probes of a training: the plan that the operator hands to it, and what it reports of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from wattloop.wire.message_fields import Integer, Number, String, TruncatedString
from wattloop.wire.wire_form import MaxItems, WireForm, check_unique

MAX_THRESHOLDS = 16
MAX_PROBED_VALUES = 64
MAX_PROBED_PARAMETERS = 8
MAX_PROBE_STEPS = 100_000
MAX_TRIALS = 256
MAX_TRIALS_OF_ATTEMPT = 1_000_000
MAX_VALUE_CHARACTERS = 256
MAX_CHOSEN_CHARACTERS = 128
MAX_PROBLEM_CHARACTERS = 512
MAX_PROBE_NUMBER = 1e14
MAX_PROBE_SECONDS = 1e10
MAX_PROBE_WATTS = 10_000
# As of a manifest: no probe tries another.
MAX_PROBE_BATCH_SIZE = 16_777_216

BatchSize = Annotated[int, Integer(MAX_PROBE_BATCH_SIZE, minimum=1)]
Watts = Annotated[int, Integer(MAX_PROBE_WATTS, minimum=1)]
Value = Annotated[str, TruncatedString(MAX_VALUE_CHARACTERS)]
Chosen = Annotated[str, String(MAX_CHOSEN_CHARACTERS)]


@dataclass(frozen=True)
class ProbedParameter(WireForm):
    """The values of a parameter that probes try."""

    name: Annotated[str, String(32), "Name of the parameter, as in spec.parameters."]
    values: Annotated[tuple[Value, ...], MaxItems(MAX_PROBED_VALUES), "The values."]


@dataclass(frozen=True)
class ProbePlan(WireForm):
    """When a training probes, and what it tries. It is the value of ``WATTLOOP_PROBES``.

    Example:
        >>> plan = ProbePlan(at=(0.5,), batch_sizes=(32, 64))
        >>> ProbePlan.from_json(plan.to_json()) == plan
        True
    """

    at: Annotated[
        tuple[Annotated[float, Number(-MAX_PROBE_NUMBER, MAX_PROBE_NUMBER)], ...],
        MaxItems(MAX_THRESHOLDS),
        "Values of the target's metric at which the training probes, in any order.",
    ]
    batch_sizes: Annotated[tuple[BatchSize, ...], MaxItems(MAX_PROBED_VALUES), "Global batch sizes to try."] = ()
    parameters: Annotated[
        tuple[ProbedParameter, ...], MaxItems(MAX_PROBED_PARAMETERS), "Further parameters to try values of."
    ] = ()
    power_limits_watts: Annotated[tuple[Watts, ...], MaxItems(MAX_PROBED_VALUES), "Limits of each GPU to try."] = ()
    steps: Annotated[int, Integer(MAX_PROBE_STEPS, minimum=1), "Measured steps of a trial."] = 20
    warm_up_steps: Annotated[int, Integer(MAX_PROBE_STEPS), "Steps before them that are not measured."] = 3
    max_trials: Annotated[int, Integer(MAX_TRIALS, minimum=2), "Most trials at one threshold."] = 32
    max_time_percent: Annotated[
        float, Number(0.0, 100.0), "Most time of all trials, in percent of the time that the training has taken so far."
    ] = 10.0

    def to_text(self) -> str:
        """It as compact JSON."""
        return json.dumps(self.to_json(), separators=(",", ":"))

    def check(self, place: str) -> None:
        """See `WireForm`: thresholds and parameters differ."""
        check_unique(f"{place}at", "threshold", self.at)
        check_unique(f"{place}parameters", "parameter", [each.name for each in self.parameters])


@dataclass(frozen=True)
class ProbeChoice(WireForm):
    """What the training went on with after a probe."""

    threshold: Annotated[float, Number(-MAX_PROBE_NUMBER, MAX_PROBE_NUMBER), "The threshold of the probe."]
    batch_size: Annotated[BatchSize, "The global batch size."]
    parameters: Annotated[
        tuple[Chosen, ...], MaxItems(MAX_PROBED_PARAMETERS), "The values of the parameters, NAME=VALUE."
    ] = ()
    power_limit_watts: Annotated[
        float | None, Number(0.0, MAX_PROBE_WATTS), "The limit of each GPU; null if none is held."
    ] = None
    trials: Annotated[int, Integer(MAX_TRIALS), "Number of trials of this probe."] = 0
    combinations: Annotated[int, Integer(), "Number of combinations in the grid."] = 0


@dataclass(frozen=True)
class ProbeReport(WireForm):
    """The trials of a process so far, over the GPUs of all ranks; rank 0 reports them."""

    trials: Annotated[int, Integer(MAX_TRIALS_OF_ATTEMPT), "Number of trials."] = 0
    energy_joules: Annotated[float, Number(0.0, MAX_PROBE_NUMBER), "Their energy, with copies and losses."] = 0.0
    time_seconds: Annotated[float, Number(0.0, MAX_PROBE_SECONDS), "Their time."] = 0.0
    choices: Annotated[tuple[ProbeChoice, ...], MaxItems(MAX_THRESHOLDS), "The choice of each probe that ended."] = ()
    problem: Annotated[
        str,
        String(MAX_PROBLEM_CHARACTERS, min_length=0),
        "Why the latest probe tried less than the grid, or chose nothing; empty if it did not.",
    ] = ""
