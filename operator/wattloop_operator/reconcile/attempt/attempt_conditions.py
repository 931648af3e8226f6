"""Conditions of an attempt: its phase, power limit and devices, and whether energies agree."""

from collections.abc import Iterator
from datetime import datetime

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.meta import Condition, ConditionStatus
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.snapshot import WorkloadPhase, WorkloadState
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.ended_ranks import dead_rank
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


def _of(recurrence: TrainingAttempt, kind: str, holds: bool, reason: str, message: str, *, now: datetime) -> Condition:
    return condition(recurrence.status.conditions, kind, holds=holds, reason=reason, message=message, now=now)


def phase_conditions(recurrence: TrainingAttempt, workload: WorkloadState, now: datetime) -> Iterator[Condition]:
    """The conditions Running, EnergyAwaited and Ending of an attempt without an outcome."""
    ended = workload.phase.ended
    # Between the end of its pods and its controller's verdict it waits for no pod.
    has_only_ended = workload.pods_ended and not workload.backs_off
    awaits_verdict = has_only_ended and not ended and true_since(recurrence.status.conditions, RUNNING) is not None
    runs = workload.phase is WorkloadPhase.RUNNING or awaits_verdict
    reason = "Running" if runs else ENERGY_AWAITED if ended else "Waiting" if workload.queue is None else "Queued"
    awaited = OUTPUT_AWAITED_MESSAGE if recurrence.spec.reporting.reads_output else AWAITED_MESSAGE
    yield _of(
        recurrence, RUNNING, runs, reason, awaited if ended else "" if awaits_verdict else workload.message, now=now
    )
    if ended:
        yield _of(recurrence, ENERGY_AWAITED, True, "PodsEnded", awaited, now=now)
    progress = recurrence.progress
    if progress.stop_requested or progress.finished or recurrence.must_end:
        reason = STOP_REQUESTED if progress.stop_requested else "Finished"
        yield _of(recurrence, ENDING, True, reason, progress.stop_reason or "the training is done", now=now)


def ended_conditions(recurrence: TrainingAttempt, now: datetime) -> Iterator[Condition]:
    """The conditions of an attempt that Wattloop ended, while its agents' final report is awaited."""
    yield from (each for each in recurrence.status.conditions if each.type not in (RUNNING, ENERGY_AWAITED))
    yield _of(recurrence, RUNNING, False, ENERGY_AWAITED, AWAITED_MESSAGE, now=now)
    yield _of(recurrence, ENERGY_AWAITED, True, "PodsEnded", AWAITED_MESSAGE, now=now)


def final_conditions(recurrence: TrainingAttempt, result: Result, message: str, now: datetime) -> tuple[Condition, ...]:
    """The conditions Running and Complete of an attempt with an outcome."""
    return (
        _of(recurrence, RUNNING, False, result.value, message, now=now),
        _of(recurrence, COMPLETE, True, result.value, message, now=now),
    )


def publication_conditions(recurrence: TrainingAttempt, result: Result, now: datetime) -> Iterator[Condition]:
    """Whether an attempt that reached its target has published its model; nothing for others."""
    model = recurrence.progress.published
    if recurrence.spec.output_directory is None or result is not Result.REACHED:
        return
    if model is None:
        yield _of(recurrence, PUBLISHED, False, "NotReported", NOT_PUBLISHED_MESSAGE, now=now)
    else:
        yield _of(recurrence, PUBLISHED, True, "Published", f"{model.path} is current, digest {model.digest}", now=now)


def power_limit_conditions(recurrence: TrainingAttempt, now: datetime) -> Iterator[Condition]:
    """Whether the chosen power limit, or the limits to be measured, could be set. A refusal fails no training."""
    spec, progress = recurrence.spec, recurrence.progress
    refusal = progress.power_limit_refusal
    is_wanted = spec.power_limit_watts is not None or spec.profile_power_limits
    is_reported = progress.gpus or progress.agents or progress.agent_limits
    if is_wanted and is_reported and (refusal or progress.power_limit_watts is not None):
        text = f"{refusal}; the training continues without it, and its cost counts for no limit" if refusal else ""
        yield _of(recurrence, POWER_LIMIT_HELD, not refusal, "Refused" if refusal else "Held", text, now=now)


def profile_conditions(recurrence: TrainingAttempt, now: datetime) -> Iterator[Condition]:
    """Whether every rank of an attempt that has ended measured the same power limits.

    Nothing if there is one rank, or if none measured power limits.
    """
    if recurrence.progress.ranks == 1 or not recurrence.progress.profile:
        return
    missing = unmeasured_ranks_text(recurrence.progress)
    text = f"{missing} did not measure each power limit; nothing is learned from incomplete ones" if missing else ""
    reason = "RanksMissing" if missing else "AllRanks"
    yield _of(recurrence, POWER_PROFILE_COMPLETE, not missing, reason, text, now=now)


def probe_conditions(recurrence: TrainingAttempt, now: datetime) -> Iterator[Condition]:
    """What the probes of an attempt that has ended chose, and what limited them; nothing if there were no trials."""
    probes = recurrence.progress.probes
    if probes is None:
        return
    chosen = (
        f"from {each.threshold:f} batch size {each.batch_size}"
        + "".join(f", {value}" for value in each.parameters)
        + ("" if each.power_limit_watts is None else f" at {each.power_limit_watts} W")
        for each in probes.choices
    )
    used = f"{probes.trials} trials used {probes.energy_joules:f} J in {probes.time_seconds:f} s"
    message = "; ".join(filter(None, (used, *chosen, probes.problem)))
    yield _of(recurrence, PROBED, not probes.problem, "Limited" if probes.problem else "Complete", message, now=now)


def rank_conditions(
    recurrence: TrainingAttempt, workload: WorkloadState | None, result: Result, now: datetime
) -> Iterator[Condition]:
    """RanksHealthy as False if a rank of an attempt that crashed or was disrupted died; otherwise nothing."""
    if workload is None or workload.failure is None or result not in (Result.CRASHED, Result.DISRUPTED):
        return
    pods = len({*(pod.uid for pod in recurrence.status.pods), *(pod.uid for pod in workload.pods)})
    message = dead_rank(recurrence.progress, workload, pods)
    if message:
        yield _of(recurrence, RANKS_HEALTHY, False, "RankDied", message, now=now)


def device_conditions(
    recurrence: TrainingAttempt, workload: WorkloadState | None, now: datetime
) -> Iterator[Condition]:
    """DevicesHealthy as False if a device of the attempt is, or was, unhealthy; otherwise nothing.

    The status keeps the condition, because the kubelet drops the device health of a pod that has ended.
    """
    reported = "" if workload is None or not workload.owned else workload.unhealthy
    message = reported or unhealthy_devices_in_status(recurrence)
    if message:
        yield _of(recurrence, DEVICES_HEALTHY, False, "Unhealthy", message, now=now)


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
) -> Iterator[Condition]:
    """Whether the processes' and the agents' energies agree, if both cover the same GPUs up to a time."""
    progress = recurrence.progress
    if not progress.gpus or agents.shared or not agents.covers(until):
        return
    differences = disagreement(agents, progress)
    processes = sum(gpu.used_millijoules for gpu in progress.gpus) / 1000
    both = f"the processes counted {processes:.1f} J, the node agents {agents.energy_millijoules / 1000:.1f} J"
    reason = "SourcesDisagree" if differences else "SourcesAgree"
    yield _of(recurrence, ENERGY_AGREES, not differences, reason, differences or both, now=now)
