"""Conditions of an attempt: its phase, power limit and devices, and whether energies agree."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.meta import Condition, ConditionStatus
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.snapshot import WorkloadPhase, WorkloadState
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.ended_ranks import dead_rank
from wattloop_operator.reconcile.attempt.ending import must_end
from wattloop_operator.reconcile.conditions import condition, true_since
from wattloop_operator.reconcile.energy.agent_energy import AgentEnergy, disagreement
from wattloop_operator.reconcile.energy.limit_measurements import unmeasured_ranks_text

RUNNING = "Running"
ENDING, STOP_REQUESTED = "Ending", "StopRequested"
COMPLETE = "Complete"
POWER_LIMIT_HELD = "PowerLimitHeld"
POWER_PROFILE_COMPLETE = "PowerProfileComplete"
DEVICES_HEALTHY = "DevicesHealthy"
PROBED = "Probed"
ENERGY_AGREES = "EnergyAgrees"
PUBLISHED = "Published"
RANKS_HEALTHY = "RanksHealthy"
NOT_PUBLISHED_MESSAGE = (
    "its training reported no published model: it must use wattloop.Run, save into run.output_dir and end without an "
    "exception; see its log. The link 'current' on the volume says which model is current"
)
# Separate from the reason of this name of Running, because Running may be False since before the
# pods ran.
ENERGY_AWAITED = "EnergyAwaited"
AWAITED_MESSAGE = "its pods have ended; waiting for the node agents' final energy report"
OUTPUT_AWAITED_MESSAGE = f"{AWAITED_MESSAGE} and the rest of its output"


def phase_conditions(recurrence: TrainingAttempt, workload: WorkloadState, now: datetime) -> Iterator[Condition]:
    """The conditions Running, EnergyAwaited and Ending of an attempt without an outcome."""
    before = recurrence.status.conditions
    ended = workload.phase.ended
    # Between the end of its pods and its controller's verdict it waits for no pod.
    has_only_ended = workload.pods_ended and not workload.backs_off
    awaits_verdict = has_only_ended and not ended and true_since(before, RUNNING) is not None
    runs = workload.phase is WorkloadPhase.RUNNING or awaits_verdict
    reason = "Running" if runs else ENERGY_AWAITED if ended else "Waiting" if workload.queue is None else "Queued"
    awaited = OUTPUT_AWAITED_MESSAGE if recurrence.spec.reporting.reads_output else AWAITED_MESSAGE
    message = awaited if ended else "" if awaits_verdict else workload.message
    yield condition(before, RUNNING, holds=runs, reason=reason, message=message, now=now)
    if ended:
        yield condition(before, ENERGY_AWAITED, holds=True, reason="PodsEnded", message=awaited, now=now)
    progress = recurrence.progress
    if progress.stop_requested or progress.finished or must_end(recurrence):
        reason = STOP_REQUESTED if progress.stop_requested else "Finished"
        message = progress.stop_reason or "the training is done"
        yield condition(before, ENDING, holds=True, reason=reason, message=message, now=now)


def ended_conditions(recurrence: TrainingAttempt, now: datetime) -> Iterator[Condition]:
    """The conditions of an attempt that Wattloop ended, while its agents' final report is awaited."""
    before = recurrence.status.conditions
    yield from (each for each in before if each.type not in (RUNNING, ENERGY_AWAITED))
    yield condition(before, RUNNING, holds=False, reason=ENERGY_AWAITED, message=AWAITED_MESSAGE, now=now)
    yield condition(before, ENERGY_AWAITED, holds=True, reason="PodsEnded", message=AWAITED_MESSAGE, now=now)


def final_conditions(recurrence: TrainingAttempt, result: Result, message: str, now: datetime) -> tuple[Condition, ...]:
    """The conditions Running and Complete of an attempt with an outcome."""
    before, reason = recurrence.status.conditions, result.value
    return (
        condition(before, RUNNING, holds=False, reason=reason, message=message, now=now),
        condition(before, COMPLETE, holds=True, reason=reason, message=message, now=now),
    )


def publication_conditions(recurrence: TrainingAttempt, result: Result, now: datetime) -> tuple[Condition, ...]:
    """Whether an attempt that reached its target has published its model; nothing for others."""
    if recurrence.spec.output_directory is None or result is not Result.REACHED:
        return ()
    model = recurrence.progress.published
    holds, reason, message = (
        (False, "NotReported", NOT_PUBLISHED_MESSAGE)
        if model is None
        else (True, "Published", f"{model.path} is current, digest {model.digest}")
    )
    return (condition(recurrence.status.conditions, PUBLISHED, holds=holds, reason=reason, message=message, now=now),)


def power_limit_conditions(recurrence: TrainingAttempt, now: datetime) -> tuple[Condition, ...]:
    """Whether the chosen power limit, or the limits to be measured, could be set.

    A refusal fails no training.
    """
    spec, progress = recurrence.spec, recurrence.progress
    refusal = progress.power_limit_refusal
    if (spec.power_limit_watts is None and not spec.profile_power_limits) or not (
        progress.gpus or progress.agents or progress.agent_limits
    ):
        return ()
    if not refusal and progress.power_limit_watts is None:
        return ()
    message = f"{refusal}; the training continues without it, and its cost counts for no limit" if refusal else ""
    reason = "Refused" if refusal else "Held"
    before = recurrence.status.conditions
    return (condition(before, POWER_LIMIT_HELD, holds=not refusal, reason=reason, message=message, now=now),)


def profile_conditions(recurrence: TrainingAttempt, now: datetime) -> tuple[Condition, ...]:
    """Whether every rank of an attempt that has ended measured the same power limits.

    Nothing if there is one rank, or if none measured power limits.
    """
    progress = recurrence.progress
    if progress.ranks == 1 or not progress.profile:
        return ()
    missing = unmeasured_ranks_text(progress)
    message = f"{missing} did not measure each power limit; nothing is learned from incomplete ones" if missing else ""
    reason = "RanksMissing" if missing else "AllRanks"
    before = recurrence.status.conditions
    return (condition(before, POWER_PROFILE_COMPLETE, holds=not missing, reason=reason, message=message, now=now),)


def probe_conditions(recurrence: TrainingAttempt, now: datetime) -> tuple[Condition, ...]:
    """What the probes of an attempt that has ended chose, and what limited them; nothing if there were no trials."""
    probes = recurrence.progress.probes
    if probes is None:
        return ()
    chosen = (
        f"from {each.threshold:f} batch size {each.batch_size}"
        + "".join(f", {value}" for value in each.parameters)
        + ("" if each.power_limit_watts is None else f" at {each.power_limit_watts} W")
        for each in probes.choices
    )
    used = f"{probes.trials} trials used {probes.energy_joules:f} J in {probes.time_seconds:f} s"
    message = "; ".join(filter(None, (used, *chosen, probes.problem)))
    before, reason = recurrence.status.conditions, "Limited" if probes.problem else "Complete"
    return (condition(before, PROBED, holds=not probes.problem, reason=reason, message=message, now=now),)


def rank_conditions(
    recurrence: TrainingAttempt, workload: WorkloadState | None, result: Result, now: datetime
) -> tuple[Condition, ...]:
    """RanksHealthy as False if a rank of an attempt that crashed or was disrupted died; otherwise nothing."""
    if workload is None or workload.failure is None or result not in (Result.CRASHED, Result.DISRUPTED):
        return ()
    pods = len({*(pod.uid for pod in recurrence.status.pods), *(pod.uid for pod in workload.pods)})
    message = dead_rank(recurrence.progress, workload, pods)
    if not message:
        return ()
    before = recurrence.status.conditions
    return (condition(before, RANKS_HEALTHY, holds=False, reason="RankDied", message=message, now=now),)


def device_conditions(
    recurrence: TrainingAttempt, workload: WorkloadState | None, now: datetime
) -> tuple[Condition, ...]:
    """DevicesHealthy as False if a device of the attempt is, or was, unhealthy; otherwise nothing.

    The status keeps the condition, because the kubelet drops the device health of a pod that has
    ended.
    """
    reported = "" if workload is None or not workload.owned else workload.unhealthy
    message = reported or unhealthy_devices_in_status(recurrence)
    if not message:
        return ()
    before = recurrence.status.conditions
    return (condition(before, DEVICES_HEALTHY, holds=False, reason="Unhealthy", message=message, now=now),)


def unhealthy_devices_in_status(recurrence: TrainingRecurrence) -> str:
    """The unhealthy devices that the status of the attempt names; empty if there are none."""
    return _message(recurrence, DEVICES_HEALTHY, ConditionStatus.FALSE)


def refused_limit_in_status(recurrence: TrainingRecurrence) -> str:
    """Why the power limit of the attempt is not held, by its status; empty if it is, or if none was requested."""
    return _message(recurrence, POWER_LIMIT_HELD, ConditionStatus.FALSE)


def stop_reason_in_status(recurrence: TrainingRecurrence) -> str:
    """Why the attempt was asked to stop, by its status; empty if it was not."""
    return _message(recurrence, ENDING, ConditionStatus.TRUE, STOP_REQUESTED)


def _message(recurrence: TrainingRecurrence, kind: str, status: ConditionStatus, reason: str = "") -> str:
    found = (each for each in recurrence.status.conditions if (each.type, each.status) == (kind, status))
    return next((each.message for each in found if reason in ("", each.reason)), "")


def energy_conditions(
    recurrence: TrainingAttempt, agents: AgentEnergy, until: datetime, now: datetime
) -> tuple[Condition, ...]:
    """Whether the processes' and the agents' energies agree, if both cover the same GPUs.

    Args:
        recurrence: The attempt.
        agents: What the node agents report.
        until: The time up to which the agents' reports must extend.
        now: The time.
    """
    progress = recurrence.progress
    if not progress.gpus or agents.shared or not agents.covers(until):
        return ()
    differences = disagreement(agents, progress)
    processes = sum(gpu.used_millijoules for gpu in progress.gpus) / 1000
    both = f"the processes counted {processes:.1f} J, the node agents {agents.energy_millijoules / 1000:.1f} J"
    reason = "SourcesDisagree" if differences else "SourcesAgree"
    before, message = recurrence.status.conditions, differences or both
    return (condition(before, ENERGY_AGREES, holds=not differences, reason=reason, message=message, now=now),)
