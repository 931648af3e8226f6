"""What a training reports of its probes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from wattloop.wire.message_fields import Integer, Number, String
from wattloop.wire.wire_form import MaxItems, WireForm

MAX_THRESHOLDS = 16
MAX_PROBED_PARAMETERS = 8
MAX_TRIALS = 256
MAX_TRIALS_OF_ATTEMPT = 1_000_000
MAX_CHOSEN_CHARACTERS = 128
MAX_PROBLEM_CHARACTERS = 512
MAX_PROBE_NUMBER = 1e14
MAX_PROBE_SECONDS = 1e10
MAX_PROBE_WATTS = 10_000
# As of a manifest: no probe tries another.
MAX_PROBE_BATCH_SIZE = 16_777_216

BatchSize = Annotated[int, Integer(MAX_PROBE_BATCH_SIZE, minimum=1)]
Chosen = Annotated[str, String(MAX_CHOSEN_CHARACTERS)]


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
