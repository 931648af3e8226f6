"""Which power profile applies to the next attempt, which limit is chosen from it, and when limits are measured again.

A profile applies to a batch size with all values of further parameters, and to the image of the job's latest attempt.
Without one of that image, that of the latest other image is used until an epoch shows to cost something else.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from wattloop.power.selectors import MeasuredLimit, selector_named
from wattloop.wire.training_messages import LimitMeasurement
from wattloop_operator.api.batch_size import DecisionKind
from wattloop_operator.api.power_fields import Power, PowerMode
from wattloop_operator.api.recurring_training_job import RecurringTrainingJobSpec
from wattloop_operator.api.training_recurrence import Attribution
from wattloop_operator.domain.gpu_readings import ProfilePoint
from wattloop_operator.domain.records import (
    ObservationRecord,
    PowerMeasurement,
    PowerProfileKey,
    PowerProfileRecord,
    once_per_record,
)
from wattloop_operator.reconcile.learning.job_observations import latest_gpus

# Relative difference of the energy or the time of an epoch above which the limits are measured again.
# Costs that change by less, or alike at all limits, hardly move the best limit.
TOLERANCE = 0.1


def applicable_profile(
    records: Sequence[ObservationRecord], profiles: Iterable[PowerProfileRecord], batch_size: int
) -> PowerProfileRecord | None:
    """The power profile of a batch size on the GPUs of the job's latest attempt.

    Of several, it is the one whose image ran last.

    `records`: the job's records, ordered by (recurrence, attempt).

    None if there is none.
    """
    gpus = latest_gpus(records)
    found = [
        profile
        for profile in profiles
        if (profile.key.gpu_product, profile.key.gpu_count) == gpus and profile.key.batch_size == batch_size
    ]
    last_run = {record.image_digest or "": index for index, record in enumerate(records)}
    return max(found, key=lambda each: (last_run.get(each.key.image_digest, -1), each.key.image_digest), default=None)


def must_be_measured_again(
    records: Sequence[ObservationRecord], profiles: Iterable[PowerProfileRecord], profile: PowerProfileRecord
) -> bool:
    """Whether an applicable profile is to be replaced by one of the present image.

    That is so if the latest attempt with the batch size ran an image without a profile, and the energy or the time of
    its epochs differs from the profile's at the same limit by more than `TOLERANCE`. With k profiles, the number of
    attempts that differ must be 2^(k-1) or a higher power of two. So an image that changes every night causes a number
    of measurements that grows with the logarithm of the number of attempts.

    `records`: the job's records, ordered by (recurrence, attempt).
    """
    images = [record.image_digest for record in records if record.image_digest is not None]
    if not profile.key.image_digest or not images or images[-1] == profile.key.image_digest:
        return False
    known = {each.key.image_digest for each in profiles if _same_configuration(each, profile)}
    compared = [
        (record, differs)
        for record in records
        if (differs := (None if record.image_digest is None else differs_from(profile, record))) is not None
    ]
    differing = [record for record, differs in compared if differs and record.image_digest not in known]
    count = len(differing)
    is_latest = bool(differing) and differing[-1] is compared[-1][0]
    return is_latest and count >= 2 ** (len(known) - 1) and count.bit_count() == 1


def _same_configuration(one: PowerProfileRecord, other: PowerProfileRecord) -> bool:
    a, b = one.key, other.key
    return (a.batch_size, a.gpu_product, a.gpu_count) == (b.batch_size, b.gpu_product, b.gpu_count)


def differs_from(profile: PowerProfileRecord, record: ObservationRecord) -> bool | None:
    """Whether the epochs of an attempt cost something else than the profile says. None if they cannot be compared."""
    key = profile.key
    energy, time = record.epoch_energy_joules, record.epoch_time_seconds
    same = (record.batch_size, record.gpu_product, record.gpu_count) == (key.batch_size, key.gpu_product, key.gpu_count)
    alone = record.attribution != Attribution.SHARED.value
    # A training that probes goes on with another configuration.
    if not same or not alone or record.probe_trials or energy is None or time is None:
        return None
    for each in profile.measurements:
        if record.power_limit_watts is not None and round(each.power_limit_watts) == round(record.power_limit_watts):
            pairs = ((energy, each.energy_joules / each.epochs), (time, each.time_seconds / each.epochs))
            return any(abs(found - expected) > TOLERANCE * expected for found, expected in pairs)
    return None


def best_limit(
    power: Power,
    energy_weight_percent: int,
    points: Iterable[ProfilePoint | LimitMeasurement | PowerMeasurement],
    gpus: int,
) -> MeasuredLimit:
    """The measurement of one epoch at the limit that a job's selector chooses."""
    eta, slowdown = energy_weight_percent / 100, power.max_slowdown_percent or 0
    return selector_named(power.selector, eta=eta, max_slowdown_percent=slowdown).select(_of_one_epoch(points, gpus))


def selected_measurement(spec: RecurringTrainingJobSpec, profile: PowerProfileRecord) -> MeasuredLimit:
    """The same of a profile, by the job's present spec."""
    weight = spec.objective.energy_weight_percent
    return best_limit(spec.power, weight, profile.measurements, profile.key.gpu_count)


def highest_measurement(profile: PowerProfileRecord) -> MeasuredLimit:
    """The measurement of one epoch at the highest limit, which is that of the default configuration."""
    return max(_of_one_epoch(profile.measurements, profile.key.gpu_count), key=lambda each: each.power_limit_watts)


def _of_one_epoch(points: Iterable[Any], gpus: int) -> list[MeasuredLimit]:
    # Decimals of a status are divided as decimals.
    return [
        MeasuredLimit(
            float(each.power_limit_watts),
            float(each.energy_joules / each.epochs),
            float(each.time_seconds / each.epochs),
            gpus,
        )
        for each in points
    ]


def at_policy_limits(
    spec: RecurringTrainingJobSpec, records: tuple[ObservationRecord, ...], profiles: tuple[PowerProfileRecord, ...]
) -> tuple[ObservationRecord, ...]:
    """The records with the energies and times that mode Optimize would have had.

    An attempt in mode Advise ran without the power limit. With a power profile of its batch size and
    GPUs, its energy and time are scaled by the ratio between the selected limit and the highest one.
    Otherwise a switch of the mode would look like a change of every epoch cost.
    """
    if spec.power.mode is not PowerMode.AUTO:
        return records
    advised = DecisionKind.ADVISE.value
    sizes = {record.batch_size for record in records if record.decision_kind == advised}
    if not sizes:
        return records
    profiles_found = ((size, applicable_profile(records, profiles, size)) for size in sizes)
    applicable = {
        size: (profile.key, _ratios(spec, profile)) for size, profile in profiles_found if profile is not None
    }
    return tuple(
        _at_policy_limit(record, applicable.get(record.batch_size)) if record.decision_kind == advised else record
        for record in records
    )


def _ratios(spec: RecurringTrainingJobSpec, profile: PowerProfileRecord) -> tuple[float, float]:
    """Energy and time of an epoch at the limit that the selector chooses, relative to the highest limit."""
    selected, highest = selected_measurement(spec, profile), highest_measurement(profile)
    return selected.energy_joules / highest.energy_joules, selected.time_seconds / highest.time_seconds


def _at_policy_limit(
    record: ObservationRecord, applicable: tuple[PowerProfileKey, tuple[float, float]] | None
) -> ObservationRecord:
    if applicable is None:
        return record
    key, ratios = applicable
    of_profile = (record.gpu_product, record.gpu_count) == (key.gpu_product, key.gpu_count)
    return _scaled(record, ratios) if of_profile else record


@once_per_record
def _scaled(record: ObservationRecord, ratios: tuple[float, float]) -> ObservationRecord:
    energy, time = ratios
    return replace(
        record,
        energy_joules=record.energy_joules * energy,
        time_seconds=record.time_seconds * time,
        epoch_energy_joules=None if record.epoch_energy_joules is None else record.epoch_energy_joules * energy,
        epoch_time_seconds=None if record.epoch_time_seconds is None else record.epoch_time_seconds * time,
    )
