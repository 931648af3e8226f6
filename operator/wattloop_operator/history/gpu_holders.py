"""The GPUs that running attempts hold: their power, their limits, and until when.

Only what is written with the attempts is known: GPUs without a training are not listed. A database has the readings of
each GPU; the object of an attempt those of all together.

What reads a database raises `OperationError` if it fails, and `InputError` if a stored object is invalid.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from pydantic import Field
from rich.table import Table
from rich.text import Text

from wattloop.printable import printable
from wattloop_operator.api.attempt_state import ProgressSummary
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.gpu_readings import RecentPower
from wattloop_operator.domain.quantities import NONE, number_text
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.history.job_overview import JOB
from wattloop_operator.history.lines import Line
from wattloop_operator.reconcile.attempt.attempt_conditions import refused_limit_in_status
from wattloop_operator.reconcile.attempt.progress_deadline import summary_of
from wattloop_operator.reconcile.energy.attempt_usage import usage_of
from wattloop_operator.store import Store

RECURRENCE = "TrainingRecurrence"
THIS_MACHINE = "this machine"
# The mode of a pipeline whose ranks hold the clocks of a plan.
RUNS_PLAN = "Plan"
# The name of a node has no comma.
NODE_SEPARATOR = ", "


class GpuLine(Line):
    """A GPU of a running attempt, or all of its GPUs if it does not report which they are."""

    namespace: str = Field(description="Namespace of the job.")
    job: str = Field(description="Name of the job.")
    attempt: str = Field(description="Name of the TrainingRecurrence that holds it.")
    node: str = Field(description="Its node; those of all pods if it is not known on which it is.")
    gpu: str = Field(description="UUID of the GPU; empty for all GPUs of the attempt.")
    gpus: int = Field(description="Number of GPUs: 1, or that of the attempt.")
    product: str = Field(description="Product name; empty if it is not known.")
    mean_power_watts: float | None = Field(
        description="Mean power since the attempt began, up to its latest report; null before the first."
    )
    recent_power_watts: float | None = Field(
        description="Mean power between the latest two reports of its process, or since it began; null if not known."
    )
    recent_seconds: float | None = Field(description="Time over which it is the mean, by the GPU's clock.")
    recent_until: datetime | None = Field(description="When the later of these reports was received.")
    limit_watts: int | None = Field(description="Power limit that is held on each GPU; null if none is.")
    refused_limit: str = Field(description="Why the limit that was requested last is not held; empty if it is.")
    frequency_plan: str = Field(description="FrequencyPlan by which its clocks are held; empty if there is none.")
    since: datetime = Field(description="When the attempt began.")
    until: datetime | None = Field(description="When it ends at the latest; null if it has no deadline.")

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of its attempt; one if it is known on which the GPU is."""
        return tuple(self.node.split(NODE_SEPARATOR))


def gpus_unknown(store: Store) -> str:
    """Why the GPUs of running attempts are not in a database, and where they are; empty if they are there."""
    if store.objects.names(JOB) or not store.observations.jobs():
        return ""
    return (
        "This is the database of a cluster's operator, which does not store running attempts; kubectl wattloop ui "
        "shows them. The metrics of the agents have every GPU."
    )


def held_gpus(store: Store) -> tuple[GpuLine, ...]:
    """The GPUs of the running attempts that a database stores, by namespace and attempt."""
    # Before an object is read as a model, its status may be anything.
    statuses = ((each, each.body.get("status")) for each in store.objects.list(RECURRENCE))
    bodies = [each for each, status in statuses if not (isinstance(status, dict) and status.get("result"))]
    running = store.objects.read_as(TrainingRecurrence, bodies)
    found: list[GpuLine] = []
    for each in store.attempt_progress.attempts(running):
        job = store.objects.get_as(RecurringTrainingJob, each.metadata.namespace, each.spec.job_ref.name)
        deadline = None if job is None else job.spec.active_deadline_seconds
        found += gpus_of_attempt(each, deadline, THIS_MACHINE)
    return tuple(found)


def gpus_of_attempt(
    recurrence: TrainingAttempt, active_deadline_seconds: int | None, unnamed_node: str
) -> Iterator[GpuLine]:
    """The GPUs of an attempt without an outcome; none before it starts, since a queued attempt holds no GPU.

    Args:
        recurrence: The attempt.
        active_deadline_seconds: Seconds after its start at which it is ended; None without a deadline.
        unnamed_node: The node of an attempt that names no node.
    """
    status, progress, summary = recurrence.status, recurrence.progress, summary_of(recurrence)
    usage, plan = usage_of(progress), status.frequency_plan
    since, deadline = status.start_time, active_deadline_seconds
    if since is None:
        return
    shared: dict[str, Any] = {
        "namespace": recurrence.metadata.namespace,
        "job": recurrence.spec.job_ref.name,
        "attempt": recurrence.metadata.name,
        "node": NODE_SEPARATOR.join(sorted({each.node for each in status.pods})) or unnamed_node,
        "product": progress.gpu_product if usage is None else usage.gpu_product,
        "limit_watts": None if summary is None else summary.power_limit_watts,
        "refused_limit": refused_limit_in_status(recurrence),
        "frequency_plan": plan.name if plan is not None and plan.mode == RUNS_PLAN else "",
        "since": since,
        "until": None if deadline is None else since + timedelta(seconds=deadline),
    }
    for gpu in progress.gpus:
        seconds = float(gpu.used_seconds)
        mean = gpu.used_millijoules / 1000 / seconds if seconds > 0 else None
        yield GpuLine(gpu=gpu.uuid, gpus=1, mean_power_watts=mean, **_recent(gpu.recent), **shared)
    gpus = status.devices if usage is None else usage.devices
    if not progress.gpus and gpus:
        yield GpuLine(gpu="", gpus=gpus, **_powers(summary), **shared)


def _recent(power: RecentPower | None) -> dict[str, Any]:
    return {
        "recent_power_watts": None if power is None else float(power.power_watts),
        "recent_seconds": None if power is None else float(power.seconds),
        "recent_until": None if power is None else power.time,
    }


def _powers(summary: ProgressSummary | None) -> dict[str, Any]:
    if summary is None:
        return {"mean_power_watts": None, **_recent(None)}
    recent, seconds = summary.power_watts, float(summary.time_seconds or 0)
    return {
        "mean_power_watts": float(summary.energy_joules or 0) / seconds if seconds > 0 else None,
        "recent_power_watts": None if recent is None else float(recent),
        "recent_seconds": None,
        "recent_until": None if recent is None else summary.last_report_time,
    }


def held_table(gpus: Sequence[GpuLine]) -> Table:
    """The GPUs as a table for the terminal."""
    table = Table(box=None, pad_edge=False)
    for name in ("node", "GPU", "held by"):
        table.add_column(name, overflow="fold")
    for name in ("recent power (W)", "mean power (W)", "limit (W)"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("until", overflow="fold")
    for each in gpus:
        cells = (
            each.node,
            each.gpu or f"{each.gpus} GPU{'' if each.gpus == 1 else 's'}",
            f"{each.namespace}/{each.attempt}",
            number_text(each.recent_power_watts),
            number_text(each.mean_power_watts),
            NONE if each.limit_watts is None else str(each.limit_watts),
            "the attempt ends" if each.until is None else f"{each.until:%Y-%m-%d %H:%M:%S} UTC at the latest",
        )
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table
