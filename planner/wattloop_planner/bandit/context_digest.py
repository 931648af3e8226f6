"""A digest of a decision's complete input that is independent of names in the code.

The digest covers a canonical form: JSON with the field names fixed below, sorted keys, and floats in
their shortest exact notation. A curve is represented by a digest of its values. When an attribute is
renamed, change the right-hand sides only.
"""

from __future__ import annotations

import hashlib
import json
import struct

from wattloop.environment import RunTarget
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.policy import DecisionContext
from wattloop_planner.metric_curve import MetricCurve
from wattloop_planner.observations import Observation

_DIGEST_BYTES = 16


def context_digest(context: DecisionContext) -> str:
    """The digest of a decision context, 32 hexadecimal digits.

    Example:
        >>> context_digest(DecisionContext((32, 64), 64, 0.5, 0, 0, (), seed=7))
        'b9ba4ea333f52b1001444ef3480fc229'
    """
    text = json.dumps(_canonical_context(context), sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _canonical_context(context: DecisionContext) -> dict[str, object]:
    # Only where they apply, so that the digests of earlier decisions remain valid.
    optional: dict[str, object] = {} if context.target is None else {"target": _canonical_target(context.target)}
    if context.parameters:
        optional["parameters"] = [
            {"name": each.name, "scale": each.scale.value, "candidates": list(each.candidates), "default": each.default}
            for each in context.parameters
        ]
    if context.excluded:
        optional["excluded"] = _canonical_configurations(context.excluded)
    return optional | {
        "form": 1,
        "batch_sizes": list(context.batch_sizes),
        "default_batch_size": context.default_batch_size,
        "eta": context.eta,
        "recurrence": context.recurrence,
        "attempt": context.attempt,
        "observations": [_canonical_observation(each) for each in context.observations],
        "seed": context.seed,
        "running": _canonical_configurations(context.running),
        "gpu_model": context.gpu_model,
        "remaining_recurrences": context.remaining_recurrences,
        "max_epochs": context.max_epochs,
    }


def _canonical_configurations(configurations: tuple[Configuration, ...]) -> list[object]:
    return [[each.batch_size, dict(each.parameters)] if each.parameters else each.batch_size for each in configurations]


def _canonical_observation(observation: Observation) -> dict[str, object]:
    optional: dict[str, object] = {"other_target": True} if observation.other_target else {}
    if observation.easier_target:
        optional["easier_target"] = True
    if observation.curve is not None:
        optional["curve"] = _canonical_curve(observation.curve)
    if observation.parameters:
        optional["parameters"] = dict(observation.parameters)
    if observation.template_digest:
        optional["template_digest"] = observation.template_digest
    if observation.image_digest:
        optional["image_digest"] = observation.image_digest
    return optional | {
        "recurrence": observation.recurrence,
        "attempt": observation.attempt,
        "batch_size": observation.batch_size,
        "outcome": observation.outcome.value,
        "epochs": observation.epochs,
        "energy_joules": observation.energy_joules,
        "time_seconds": observation.time_seconds,
        "max_power_watts": observation.max_power_watts,
        "gpu_model": observation.gpu_model,
        "epoch_energy_joules": observation.epoch_energy_joules,
        "epoch_time_seconds": observation.epoch_time_seconds,
        "from_other_job": observation.from_other_job,
    }


def _canonical_target(target: RunTarget) -> dict[str, object]:
    return {
        "metric": target.metric,
        "threshold": float(target.threshold),
        "maximize": target.maximize,
        "consecutive_evaluations": target.consecutive_evaluations,
    }


def _canonical_curve(curve: MetricCurve) -> str:
    """A digest of the values as IEEE 754 doubles: a thousand curves as text would be megabytes."""
    values = (*curve.epochs, *curve.metrics)
    return hashlib.blake2b(struct.pack(f"<{len(values)}d", *values), digest_size=_DIGEST_BYTES).hexdigest()
