"""Whether a training gets the batch size that is decided for it.

Wattloop sets it in variables of the training containers. A template whose text names one of them passes it on, as
``--batch-size=$(WATTLOOP_BATCH_SIZE)``; a script may also read the variable by itself, or by the client. What a script
reads no manifest shows. So a job whose script has no client, and whose template names no such variable, gets a warning.
"""

from __future__ import annotations

from collections.abc import Iterator

from wattloop_operator.api.recurring_training_job import Mode, RecurringTrainingJobSpec

BATCH_SIZE_PASSED = "BatchSizePassed"
VARIABLES = ("WATTLOOP_BATCH_SIZE", "WATTLOOP_PER_DEVICE_BATCH_SIZE")


def unpassed_batch_size(spec: RecurringTrainingJobSpec) -> str:
    """That nothing of a job passes the batch size to a training without the client, and what to do; empty otherwise.

    A job that always runs one batch size has no choice to pass.
    """
    is_one = spec.mode is Mode.FIXED or len(set(spec.batch_size.candidates)) == 1
    if spec.reporting.uses_client or is_one:
        return ""
    if any(name.encode() in spec.template.spec.text for name in VARIABLES):
        return ""
    return (
        f"nothing in spec.template names {VARIABLES[0]} or {VARIABLES[1]}: a script that does not read one of these "
        "variables by itself trains with a batch size of its own, whatever is decided; pass it, such as "
        f"args: [--batch-size=$({VARIABLES[0]})]"
    )


def batch_size_passed(spec: RecurringTrainingJobSpec) -> Iterator[tuple[str, bool, str, str]]:
    """The condition of a job that passes no batch size; nothing for any other job."""
    text = unpassed_batch_size(spec)
    if text:
        yield BATCH_SIZE_PASSED, False, "NotInTemplate", text
