"""A digest of a decision's complete input that is independent of names in the code.

The digest covers canonical JSON with the field names fixed below, and those of
`Observation.canonical_form`. When an attribute is renamed, change the right-hand sides only.
"""

import hashlib

from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.policy import DecisionContext
from wattloop_planner.canonical_json import canonical_json

_DIGEST_BYTES = 16


def context_digest(context: DecisionContext) -> str:
    """The digest of a decision context, 32 hexadecimal digits.

    Example:
        >>> context_digest(DecisionContext((32, 64), 64, 0.5, 0, 0, (), seed=7))
        'b9ba4ea333f52b1001444ef3480fc229'
    """
    parts = {name: canonical_json(value) for name, value in _canonical_context(context).items()}
    parts["observations"] = f"[{','.join(each.canonical_form for each in context.observations)}]"
    text = "{" + ",".join(f'"{name}":{parts[name]}' for name in sorted(parts)) + "}"
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _canonical_context(context: DecisionContext) -> dict[str, object]:
    # Only where they apply, so that the digests of earlier decisions remain valid.
    optional: dict[str, object] = {}
    if context.target is not None:
        optional["target"] = {
            "metric": context.target.metric,
            "threshold": float(context.target.threshold),
            "maximize": context.target.maximize,
            "consecutive_evaluations": context.target.consecutive_evaluations,
        }
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
        "seed": context.seed,
        "running": _canonical_configurations(context.running),
        "gpu_model": context.gpu_model,
        "remaining_recurrences": context.remaining_recurrences,
        "max_epochs": context.max_epochs,
    }


def _canonical_configurations(configurations: tuple[Configuration, ...]) -> list[object]:
    return [[each.batch_size, dict(each.parameters)] if each.parameters else each.batch_size for each in configurations]
