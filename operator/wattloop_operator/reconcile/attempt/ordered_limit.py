"""The power limit that the operator orders the node agents to hold for an attempt, and its measurement.

Where limits are to be measured, it orders one after another, from the highest down, and measures each over whole
epochs. An epoch in which the limit was changed counts for neither limit, unless the change came at once.

It knows the cost of epochs by marks: the energy and the time of all GPUs at the training's report of a new epoch. An
agent's latest reading is a few seconds older; the energy since is the mean power since the last mark times its age.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from wattloop.power.sequential_design import limits_to_measure
from wattloop.wire.node_energy import PodLimitState
from wattloop.wire.training_messages import MAX_LIMITS
from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.api.power_fields import Power
from wattloop_operator.domain.gpu_readings import (
    MAX_LIMIT_PODS,
    MAX_MEASURING_RANKS,
    AgentLimits,
    AgentReadings,
    EpochMark,
    LimitWindow,
    PodPowerLimit,
    ProfilePoint,
)
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.records import PodEnergy
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.energy.agent_energy import AgentEnergy
from wattloop_operator.reconcile.learning.power_profiles import best_limit

# An agent reports every few seconds. Of older readings it is not known what was used since.
MAX_AGE_SECONDS = 60.0
# Power over less time is less certain than that since the GPU was assigned.
MIN_POWER_SECONDS = 5.0
# The error of a mark, over the time since then, is an error of the power, and times the age one of the next mark. So at
# most half of it remains; with more than the whole, the errors grow from mark to mark.
MIN_AGES = 2.0
DECIMALS = 3


def needs_agents(before: Progress, after: Progress) -> bool:
    """Whether the progress after a report may get a mark: it has a new epoch, and no process has reported a GPU."""
    return not after.gpus and after != before and _is_new(after)


def with_agent_readings(
    recurrence: TrainingAttempt, progress: Progress, energies: Sequence[PodEnergy], now: datetime
) -> Progress:
    """The progress with a mark of its epoch, if that is new and the agents have measured all GPUs lately."""
    if progress.gpus:
        return progress if progress.agents is None else progress.model_copy(update={"agents": None})
    if not _is_new(progress):
        return progress
    before, epoch = progress.agents, progress.epoch or to_decimal(0)
    agents = AgentEnergy(tuple(energies), max(recurrence.status.devices, 1))
    mark = None if agents.shared else _mark(agents, float(epoch), now, None if before is None else before.latest)
    if mark is None:
        return progress
    readings = AgentReadings(
        devices=agents.devices,
        gpu_product=agents.gpu_product,
        max_power_limit_watts=agents.max_power_limit_watts,
        first=mark if before is None else before.first,
        latest=mark,
    )
    return progress.model_copy(update={"agents": readings})


def _is_new(progress: Progress) -> bool:
    return progress.agents is None or (progress.epoch or 0) > progress.agents.latest.epoch


def _mark(agents: AgentEnergy, epoch: float, now: datetime, before: EpochMark | None) -> EpochMark | None:
    ages = [
        (0.0 if each.ended else max((now - (each.measured_at or each.reported_at)).total_seconds(), 0.0))
        for each in agents.energies
    ]
    if not agents.includes_all_gpus or max(ages) > MAX_AGE_SECONDS:
        return None
    joules = agents.energy_millijoules / 1000
    ages_seconds = sum(ages)
    seconds = sum(each.time_seconds - each.start_time_seconds for each in agents.energies)
    power = joules / seconds if seconds > 0 else 0.0
    if before is not None:
        later = seconds - float(before.time_seconds) * agents.devices
        if later >= max(MIN_POWER_SECONDS * agents.devices, MIN_AGES * ages_seconds):
            power = max(joules - float(before.energy_joules), 0.0) / later
    maximum = agents.max_power_limit_watts
    energy = joules + (power if maximum is None else min(power, maximum / agents.devices)) * sum(ages)
    until_now = (
        each if each.ended else replace(each, time_seconds=each.time_seconds + age, measured_at=now)
        for each, age in zip(agents.energies, ages, strict=True)
    )
    time = replace(agents, energies=tuple(until_now)).duration_seconds
    return EpochMark.model_validate(
        {
            "epoch": epoch,
            "energy_joules": round(max(energy, 0.0 if before is None else float(before.energy_joules)), DECIMALS),
            "time_seconds": round(max(time, 0.0 if before is None else float(before.time_seconds)), DECIMALS),
        }
    )


# Each takes up to two epochs. Time and energy are smooth functions of the limit, so five suffice.
MAX_ORDERED_LIMITS = 5
# The energy at the ends of a window is known up to a few seconds of the change of power.
MIN_WINDOW_SECONDS = 30.0
# An epoch counts for the limit that was changed to within this part of it.
MAX_CHANGE_PART = 0.02
# Repeated reports of one limit give its beginning up to the delay of a report.
SINCE_TOLERANCE = timedelta(seconds=10)
# An agent may say anything; a time must stay representable.
MAX_HELD = timedelta(days=3650)


def limits_to_order(min_watts: int, max_watts: int) -> tuple[int, ...]:
    """The limits to measure, from the highest down in equal steps, which are a multiple of 25 W.

    Example:
        >>> limits_to_order(200, 700)
        (700, 575, 450, 325, 200)
        >>> limits_to_order(100, 160)
        (160, 135, 110)
    """
    return tuple(map(int, limits_to_measure(min_watts, max_watts, MAX_ORDERED_LIMITS)))


def needs_order(recurrence: TrainingAttempt, *, may_have_socket: bool) -> bool:
    """Whether agents hold the attempt's power limit on the operator's order, because its processes cannot.

    `may_have_socket`: whether its pods may have the agent's socket. Then it is waited for a report without GPUs,
    because a process that has the socket requests the limit itself.
    """
    spec, progress = recurrence.spec, recurrence.progress
    if recurrence.status.result is not None or progress.gpus:
        return False
    if spec.power_limit_watts is None and not spec.profile_power_limits:
        return False
    return not may_have_socket or bool(progress.processes) or progress.epoch is not None


def ordered_limit(recurrence: TrainingAttempt, power: Power) -> int | None:
    """The limit to hold on each GPU; None: none, because it is not known yet which ones are allowed, or none is.

    `recurrence`: the attempt, of which `needs_order` is true.
    """
    spec, progress = recurrence.spec, recurrence.progress
    if spec.power_limit_watts is not None:
        return spec.power_limit_watts
    if progress.is_ending and progress.power_limit_watts is not None:
        # Another one would give the attempt the name of a limit with which none of its epochs ran.
        return progress.power_limit_watts
    allowed = _allowed(() if progress.agent_limits is None else progress.agent_limits.pods)
    if allowed is None:
        return None
    measured = {point.power_limit_watts for point in progress.profile}
    missing = [watts for watts in limits_to_order(*allowed) if watts not in measured]
    if missing:
        return missing[0]
    gpus = 1 if progress.agents is None else progress.agents.devices
    return round(best_limit(power, spec.energy_weight_percent, progress.profile, gpus).power_limit_watts)


def with_pod_limit(progress: Progress, state: PodLimitState, now: datetime) -> Progress:
    """The progress after an agent's report about the limit of one pod; the same if nothing has changed."""
    if progress.gpus:
        return progress
    limits = progress.agent_limits or AgentLimits()
    known = {pod.uid: pod for pod in limits.pods}
    before = known.get(state.pod_uid)
    lowest, highest = (None, None) if state.allowed_watts is None else state.allowed_watts
    held = round(state.held_watts) or None
    since = None if held is None else now - min(timedelta(seconds=state.held_seconds), MAX_HELD)
    if before is not None and before.held_watts == held and since is not None and before.held_since is not None:
        since = before.held_since if abs(since - before.held_since) <= SINCE_TOLERANCE else since
    known[state.pod_uid] = PodPowerLimit(
        uid=state.pod_uid,
        min_watts=None if lowest is None else math.ceil(lowest),
        max_watts=None if highest is None else math.floor(highest),
        held_watts=held,
        held_since=since,
    )
    pods = tuple(known.values())[-MAX_LIMIT_PODS:]
    refusal = state.refusal or ("" if _held(pods) is not None else progress.power_limit_refusal)
    changed = progress.model_copy(update={"agent_limits": limits.model_copy(update={"pods": pods})})
    return _with_held_limit(changed, refusal)


def with_limit_measured(before: Progress, after: Progress, pod_uids: Collection[str], now: datetime) -> Progress:
    """The progress after a report of the training: what it says about limits, and a measurement of the held one.

    `pod_uids`: the pods that have the attempt's GPUs now; empty if they were not read.
    """
    if after.gpus:
        return after if after.agent_limits is None else after.model_copy(update={"agent_limits": None})
    before_limits = after.agent_limits
    if before_limits is None:
        return after
    # The report of a process without GPUs says nothing about limits.
    after = _with_held_limit(after, before.power_limit_refusal)
    if after.agents is None or (before.agents is not None and after.agents.latest == before.agents.latest):
        return after
    pods = tuple(pod for pod in before_limits.pods if pod.uid in pod_uids)
    held = _held(pods) if len(pods) == len(set(pod_uids)) else None
    limits, profile = AgentLimits(pods=pods), after.profile
    is_measured = any(point.power_limit_watts == held for point in profile)
    if held is not None and not is_measured and len(profile) < MAX_LIMITS:
        mark, start = after.agents.latest, _start(before_limits.window, before.agents, held)
        if start is None or not _is_held_between(start, mark, pods, now):
            start = mark
        if _seconds(start, mark) >= MIN_WINDOW_SECONDS:
            profile = (*profile, _point(held, start, mark, after.ranks))
        else:
            limits = limits.model_copy(update={"window": LimitWindow(power_limit_watts=held, start=start)})
    after = after.model_copy(update={"agent_limits": limits, "profile": profile})
    return _with_held_limit(after, after.power_limit_refusal)


def _start(window: LimitWindow | None, readings: AgentReadings | None, held: int) -> EpochMark | None:
    if window is not None and window.power_limit_watts == held:
        return window.start
    return None if readings is None else readings.latest


def _is_held_between(start: EpochMark, mark: EpochMark, pods: Collection[PodPowerLimit], now: datetime) -> bool:
    held_seconds = min((now - (pod.held_since or now)).total_seconds() for pod in pods)
    return held_seconds >= _seconds(start, mark) * (1 - MAX_CHANGE_PART)


def _seconds(start: EpochMark, mark: EpochMark) -> float:
    return float(mark.time_seconds - start.time_seconds)


def _point(watts: int, start: EpochMark, mark: EpochMark, ranks: int) -> ProfilePoint:
    return ProfilePoint(
        power_limit_watts=watts,
        energy_joules=mark.energy_joules - start.energy_joules,
        time_seconds=mark.time_seconds - start.time_seconds,
        epochs=mark.epoch - start.epoch,
        # The agents measure the GPUs of all ranks.
        ranks=f"{(1 << min(ranks, MAX_MEASURING_RANKS)) - 1:x}",
    )


def _with_held_limit(progress: Progress, refusal: str) -> Progress:
    pods = () if progress.agent_limits is None else progress.agent_limits.pods
    return progress.model_copy(update={"power_limit_watts": _held(pods), "power_limit_refusal": refusal})


def _held(pods: Collection[PodPowerLimit]) -> int | None:
    """The limit that is held for all these pods; None: none, or several."""
    limits = {pod.held_watts for pod in pods}
    return limits.pop() if len(limits) == 1 else None


def _allowed(pods: Collection[PodPowerLimit]) -> tuple[int, int] | None:
    ranges = [(pod.min_watts, pod.max_watts) for pod in pods]
    known = [(low, high) for low, high in ranges if low is not None and high is not None]
    if not known or len(known) < len(ranges):
        return None
    lowest, highest = max(1, *(low for low, _ in known)), min(high for _, high in known)
    return (lowest, highest) if lowest <= highest else None
