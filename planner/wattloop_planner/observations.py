"""Observations: the cost and outcome of each attempt from which a policy learns."""

import hashlib
import struct
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from wattloop.energy.cost import CostModel
from wattloop.wire.environment import RunTarget
from wattloop_planner.canonical_json import canonical_json
from wattloop_planner.metric_curve import MetricCurve

_CURVE_DIGEST_BYTES = 16
# Values of further parameters by name.
ParameterValues = tuple[tuple[str, str], ...]
# A file has the value of the parameter NAME in the column or member param:NAME.
PARAMETER_PREFIX = "param:"


class Outcome(StrEnum):
    """How an attempt ended.

    REACHED: the target metric was reached.
    STOPPED: stopped because it became too expensive; the target takes more epochs than were run.
    EXHAUSTED: all epochs run, target not reached.
    PLATEAUED: stopped at its plateau, below the target. As for EXHAUSTED, the target is not reached within the limit
        of epochs, although fewer epochs were run.
    DIVERGED: stopped because its metric diverged. The arm is not tried again, unless it has reached the
        target before.
    CRASHED: the process died, for example out of memory. A crash counts against the arm and carries
        no information about epochs.

    An attempt that reported no metric yields no observation.
    """

    REACHED = "reached"
    STOPPED = "stopped"
    EXHAUSTED = "exhausted"
    PLATEAUED = "plateaued"
    DIVERGED = "diverged"
    CRASHED = "crashed"


# Outcomes of attempts that ran as long as a run of the job does.
WHOLE_RUNS = (Outcome.REACHED, Outcome.EXHAUSTED)


@dataclass(frozen=True)
class StartUp:
    """What an attempt used before its epochs."""

    energy_joules: float
    time_seconds: float


@dataclass(frozen=True)
class Observation:
    """The cost and outcome of one attempt.

    Attributes:
        recurrence: Index of the recurrence, from 0.
        attempt: Index of the attempt within the recurrence, from 0.
        epochs: Epochs run; fractional if the attempt ended within an epoch.
        energy_joules: Energy of all GPUs over the attempt.
        max_power_watts: Sum of the maximum power limits of its GPUs.
        gpu_model: Product name of its GPUs. Epochs are comparable between models, epoch costs are not.
        epoch_energy_joules: Energy of one epoch at the best power limit; None without a profile.
        epoch_time_seconds: Duration of one epoch at the best power limit; None without a profile.
        from_other_job: Whether another job (`spec.batchSize.learnFrom`) made the observation. Only its
            epochs are used.
        other_target: Whether the attempt trained towards another target than the job has now. Only its
            epoch cost is used.
        curve: The metric over the epochs run; None if unknown.
        easier_target: Whether the attempt ended because it reached an easier target than the job has now
            (`wattloop_planner.observations`). Its epochs tell the arms apart, up to a common factor.
        template_digest: Digest of the template of the training; empty if unknown.
        image_digest: Digest of the image that the training ran; empty if unknown.
        parameters: Value of each further parameter that the attempt ran with. One without a value had its
            default.
        start_up: What it used before its epochs, as a part of its energy and time; None if not measured.
    """

    recurrence: int
    attempt: int
    batch_size: int
    outcome: Outcome
    epochs: float
    energy_joules: float
    time_seconds: float
    max_power_watts: float
    gpu_model: str = ""
    epoch_energy_joules: float | None = None
    epoch_time_seconds: float | None = None
    from_other_job: bool = False
    other_target: bool = False
    curve: MetricCurve | None = None
    easier_target: bool = False
    parameters: ParameterValues = ()
    template_digest: str = ""
    image_digest: str = ""
    start_up: StartUp | None = None

    @property
    def gives_epochs(self) -> bool:
        """Whether it gives information about the epochs to the target."""
        return self.outcome is not Outcome.CRASHED and self.epochs > 0 and not self.other_target

    @cached_property
    def canonical_form(self) -> str:
        """The observation as canonical JSON, for digests of decisions; names of attributes may change.

        A curve is represented by a digest of its values. Optional attributes appear only where they
        apply, so that the digests of earlier decisions remain valid.
        """
        optional: dict[str, object] = {"other_target": True} if self.other_target else {}
        if self.easier_target:
            optional["easier_target"] = True
        if self.curve is not None:
            optional["curve"] = _curve_digest(self.curve)
        if self.parameters:
            optional["parameters"] = dict(self.parameters)
        if self.template_digest:
            optional["template_digest"] = self.template_digest
        if self.image_digest:
            optional["image_digest"] = self.image_digest
        if self.start_up is not None:
            optional["start_up"] = [self.start_up.energy_joules, self.start_up.time_seconds]
        return canonical_json(
            optional
            | {
                "recurrence": self.recurrence,
                "attempt": self.attempt,
                "batch_size": self.batch_size,
                "outcome": self.outcome.value,
                "epochs": self.epochs,
                "energy_joules": self.energy_joules,
                "time_seconds": self.time_seconds,
                "max_power_watts": self.max_power_watts,
                "gpu_model": self.gpu_model,
                "epoch_energy_joules": self.epoch_energy_joules,
                "epoch_time_seconds": self.epoch_time_seconds,
                "from_other_job": self.from_other_job,
            }
        )

    def cost_joules(self, eta: float) -> float:
        """Cost of the attempt in joules for the energy weight `eta`, on the GPUs it ran on."""
        return CostModel(eta, self.max_power_watts).cost_joules(self.energy_joules, self.time_seconds)


def _curve_digest(curve: MetricCurve) -> str:
    """A digest of the values as IEEE 754 doubles: a thousand curves as text would be megabytes."""
    values = (*curve.epochs, *curve.metrics)
    return hashlib.blake2b(struct.pack(f"<{len(values)}d", *values), digest_size=_CURVE_DIGEST_BYTES).hexdigest()


def retargeted(observation: Observation, target: RunTarget) -> Observation | None:
    """The observation that an attempt would have given with a target that it did not have.

    If the curve reaches the target, the attempt counts as reached at that epoch. If not, the target
    takes more epochs than were run, and the attempt counts as stopped: at an easier target, if it reached
    its own. The cost of an epoch remains as measured.

    Args:
        observation: An attempt with another target; its curve must be of the metric `target.metric`.
        target: The present target.

    Returns:
        None if the attempt says nothing about the target's epochs: it crashed, has no curve or ran for no
        epochs.
    """
    if observation.curve is None or observation.outcome is Outcome.CRASHED or observation.epochs <= 0:
        return None
    reached = observation.curve.first_reached(target)
    if reached is None:
        easier = observation.outcome is Outcome.REACHED
        return replace(observation, outcome=Outcome.STOPPED, other_target=False, easier_target=easier)
    epochs = min(reached, observation.epochs)
    return replace(
        observation,
        outcome=Outcome.REACHED,
        epochs=epochs,
        energy_joules=_until(epochs, observation, observation.energy_joules, observation.epoch_energy_joules),
        time_seconds=_until(epochs, observation, observation.time_seconds, observation.epoch_time_seconds),
        curve=observation.curve.before(epochs),
        other_target=False,
    )


def _until(epochs: float, observation: Observation, total: float, of_epoch: float | None) -> float:
    """Energy or time after some of an attempt's epochs; the profiled first epoch may be more expensive."""
    share = total * epochs / observation.epochs
    if of_epoch is None:
        return share
    return max(total - (observation.epochs - epochs) * of_epoch, share)
