"""The GPUs that running attempts hold: their power, their limits, and until when.

Only what is written with the attempts is known: GPUs without a training are not listed. A database has the readings of
each GPU; the object of an attempt those of all together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from rich.table import Table
from rich.text import Text

from wattloop.printable import printable
from wattloop_operator.api.attempt_state import ProgressSummary
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.gpu_readings import GpuReadingStatus, RecentPower
from wattloop_operator.domain.quantities import NONE, number_text
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.history.job_overview import JOB
from wattloop_operator.reconcile.attempt.attempt_conditions import refused_limit_in_status
from wattloop_operator.reconcile.attempt.progress_summary import summary_of
from wattloop_operator.reconcile.energy.attempt_usage import usage_of
from wattloop_operator.store import Store

RECURRENCE = "TrainingRecurrence"
THIS_MACHINE = "this machine"
# The mode of a pipeline whose ranks hold the clocks of a plan.
RUNS_PLAN = "Plan"
# The name of a node has no comma.
NODE_SEPARATOR = ", "


@dataclass(frozen=True)
class HeldGpu:
    """A GPU of a running attempt, or all of its GPUs if it does not report which they are.

    Attributes:
        namespace: Namespace of the job.
        job: Name of the job.
        attempt: Name of the TrainingRecurrence that holds it.
        node: Its node; those of all pods if it is not known on which it is.
        gpu: UUID of the GPU; empty for all GPUs of the attempt.
        gpus: Number of GPUs: 1, or that of the attempt.
        product: Product name; empty if it is not known.
        mean_power_watts: Mean power since the attempt began, up to its latest report; None before the first.
        recent_power_watts: Mean power between the latest two reports of its process, or since it began; None if it is
            not known.
        recent_seconds: Time over which it is the mean, by the GPU's clock; None if that is not known.
        recent_until: When the later of them was received; None if the power is not known.
        limit_watts: Power limit that is held on each GPU; None if none is.
        refused_limit: Why the limit that was requested last is not held; empty if it is.
        frequency_plan: Name of the FrequencyPlan by which its clocks are held; empty if there is none.
        since: When the attempt began.
        until: When the attempt ends at the latest, and with it the limit; None if it has no deadline.
    """

    namespace: str
    job: str
    attempt: str
    node: str
    gpu: str
    gpus: int
    product: str
    mean_power_watts: float | None
    recent_power_watts: float | None
    recent_seconds: float | None
    recent_until: datetime | None
    limit_watts: int | None
    refused_limit: str
    frequency_plan: str
    since: datetime
    until: datetime | None

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of its attempt; one if it is known on which the GPU is."""
        return tuple(self.node.split(NODE_SEPARATOR))

    def to_json(self) -> dict[str, Any]:
        """The GPU as a JSON object with the names of the attributes."""
        times = {name: getattr(self, name) for name in ("since", "until", "recent_until")}
        return asdict(self) | {name: each and each.isoformat() for name, each in times.items()}


def gpus_unknown(store: Store) -> str:
    """Why the GPUs of running attempts are not in a database, and where they are; empty if they are there.

    Raises:
        OperationError: The database failed.
    """
    if store.objects.names(JOB) or not store.observations.jobs():
        return ""
    return (
        "This is the database of a cluster's operator, which does not store running attempts; kubectl wattloop ui "
        "shows them. The metrics of the agents have every GPU."
    )


def held_gpus(store: Store) -> tuple[HeldGpu, ...]:
    """The GPUs of the running attempts that a database stores, by namespace and attempt.

    Raises:
        InputError: A stored object is invalid.
        OperationError: The database failed.
    """
    bodies = [each for each in store.objects.list(RECURRENCE) if not _has_ended(each.body.get("status"))]
    running = store.objects.read_as(TrainingRecurrence, bodies)
    found: list[HeldGpu] = []
    for each in store.attempt_progress.attempts(running):
        job = store.objects.get_as(RecurringTrainingJob, each.metadata.namespace, each.spec.job_ref.name)
        deadline = None if job is None else job.spec.active_deadline_seconds
        found += gpus_of_attempt(each, deadline, THIS_MACHINE)
    return tuple(found)


def _has_ended(status: object) -> bool:
    """Whether the status of an object, before it is read as a model, has a result."""
    return isinstance(status, dict) and bool(status.get("result"))


def gpus_of_attempt(
    recurrence: TrainingAttempt, active_deadline_seconds: int | None, unnamed_node: str
) -> Iterator[HeldGpu]:
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
        yield HeldGpu(gpu=gpu.uuid, gpus=1, mean_power_watts=_mean_power_watts(gpu), **_recent(gpu.recent), **shared)
    gpus = status.devices if usage is None else usage.devices
    if not progress.gpus and gpus:
        yield HeldGpu(gpu="", gpus=gpus, **_powers(summary), **shared)


def _recent(power: RecentPower | None) -> dict[str, Any]:
    return {
        "recent_power_watts": None if power is None else float(power.power_watts),
        "recent_seconds": None if power is None else float(power.seconds),
        "recent_until": None if power is None else power.time,
    }


def _powers(summary: ProgressSummary | None) -> dict[str, Any]:
    """The powers of all GPUs of an attempt together."""
    if summary is None:
        return {"mean_power_watts": None, **_recent(None)}
    recent, seconds = summary.power_watts, float(summary.time_seconds or 0)
    return {
        "mean_power_watts": float(summary.energy_joules or 0) / seconds if seconds > 0 else None,
        "recent_power_watts": None if recent is None else float(recent),
        "recent_seconds": None,
        "recent_until": None if recent is None else summary.last_report_time,
    }


def _mean_power_watts(gpu: GpuReadingStatus) -> float | None:
    seconds = float(gpu.used_seconds)
    return gpu.used_millijoules / 1000 / seconds if seconds > 0 else None


def held_table(gpus: Sequence[HeldGpu]) -> Table:
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
