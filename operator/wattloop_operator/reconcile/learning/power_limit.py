"""The power limit that a job's selector chooses, and what an attempt without it would have used."""

from __future__ import annotations

from dataclasses import replace

from wattloop.power.selectors import MeasuredLimit, selector_named
from wattloop_operator.api.power_fields import PowerLimitMode
from wattloop_operator.api.recurring_training_job import RecurringTrainingJobSpec
from wattloop_operator.api.training_recurrence import DecisionKind
from wattloop_operator.domain.records import ObservationRecord, PowerProfileKey, PowerProfileRecord, once_per_record
from wattloop_operator.reconcile.learning.power_profiles import applicable_profile


def selected_measurement(spec: RecurringTrainingJobSpec, profile: PowerProfileRecord) -> MeasuredLimit:
    """The measurement of one epoch at the limit that the job's selector chooses."""
    limit, eta = spec.power.limit, spec.objective.energy_weight_percent / 100
    selector = selector_named(limit.selector, eta=eta, max_slowdown_percent=limit.max_slowdown_percent or 0)
    return selector.select(_epoch_measurements(profile))


def highest_measurement(profile: PowerProfileRecord) -> MeasuredLimit:
    """The measurement of one epoch at the highest limit, which is that of the default configuration."""
    return max(_epoch_measurements(profile), key=lambda each: each.power_limit_watts)


def _epoch_measurements(profile: PowerProfileRecord) -> list[MeasuredLimit]:
    """The measurements of a profile, each for one epoch."""
    return [
        MeasuredLimit(
            each.power_limit_watts,
            each.energy_joules / each.epochs,
            each.time_seconds / each.epochs,
            profile.key.gpu_count,
        )
        for each in profile.measurements
    ]


def at_policy_limits(
    spec: RecurringTrainingJobSpec, records: tuple[ObservationRecord, ...], profiles: tuple[PowerProfileRecord, ...]
) -> tuple[ObservationRecord, ...]:
    """The records with the energies and times that mode Optimize would have had.

    An attempt in mode Advise ran without the power limit. With a power profile of its batch size and
    GPUs, its energy and time are scaled by the ratio between the selected limit and the highest one.
    Otherwise a switch of the mode would look like a change of every epoch cost.
    """
    if spec.power.limit.mode is not PowerLimitMode.AUTO:
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
