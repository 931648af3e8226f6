"""Records and observations of a job, from its objects and the store.

A record is made from an ended TrainingRecurrence as it was written, including its rounding, and from the row of its
progress. The store alone leads to the same decisions. Where a record is not there, the object gives what it states.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.recurring_training_job import RecurringTrainingJobSpec
from wattloop_operator.api.training_recurrence import Attribution, TrainingRecurrence, TrainingRecurrenceSpec, Usage
from wattloop_operator.domain.pipeline_result import PipelineResult
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.records import (
    MAX_OBSERVATIONS_OF_JOB,
    LateUsage,
    ObservationRecord,
    PowerMeasurement,
    PowerProfileKey,
    PowerProfileRecord,
    once_per_record,
)
from wattloop_operator.domain.snapshot import Snapshot, once_per_snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.energy.attempt_usage import has_cost, max_power_of
from wattloop_operator.reconcile.energy.counted_intervals import devices_at_once
from wattloop_operator.reconcile.energy.epoch_usage import EpochUsage, epoch_usage
from wattloop_operator.reconcile.energy.limit_measurements import complete_points, holds_chosen
from wattloop_planner.bandit.configuration import Configuration, Parameter
from wattloop_planner.metric_curve import MetricCurve
from wattloop_planner.observations import Observation, Outcome, ParameterValues, StartUp

OUTCOMES = {
    Result.REACHED: Outcome.REACHED,
    Result.STOPPED: Outcome.STOPPED,
    Result.EXHAUSTED: Outcome.EXHAUSTED,
    Result.PLATEAUED: Outcome.PLATEAUED,
    Result.DIVERGED: Outcome.DIVERGED,
    Result.CRASHED: Outcome.CRASHED,
    # A batch size that hangs each time must not be tried for ever.
    Result.HUNG: Outcome.CRASHED,
    # A run that was ended at its deadline shows that the target needs more epochs than it ran.
    Result.DEADLINE_EXCEEDED: Outcome.STOPPED,
}
MIN_MEASUREMENTS = 2
# Some libraries write epochs with two decimals.
SAME_EPOCH = 0.01


@once_per_snapshot
def known_records(snapshot: Snapshot) -> tuple[ObservationRecord, ...]:
    """The records of all outcomes, ordered by (recurrence, attempt). The store has precedence over the objects."""
    records = list(snapshot.records)
    # An earlier attempt comes first: the record of the next one says whether it went on from there.
    for recurrence in sorted(snapshot.recurrences, key=lambda each: each.order):
        if recurrence.status.result is None:
            continue
        key = recurrence.order
        place = bisect_left(records, key, key=lambda record: record.order)
        if place == len(records) or records[place].order != key:
            records.insert(place, record_of(recurrence, records[:place]))
    return tuple(records)


def is_beyond_bound(snapshot: Snapshot, recurrence: TrainingAttempt) -> bool:
    """Whether the store has as many attempts of the job as it keeps, all of them newer than this one."""
    records = snapshot.records
    if len(records) < MAX_OBSERVATIONS_OF_JOB:
        return False
    return recurrence.order < records[0].order


@once_per_snapshot
def records_with_late_usage(snapshot: Snapshot) -> tuple[ObservationRecord, ...]:
    """The same with the latest known usage, for totals. Learning uses the usage at the outcome, which may be less."""
    with_late_usage = {(each.recurrence, each.attempt): each for each in snapshot.late_usages}
    stored = {record.order: record for record in snapshot.records}
    for recurrence in snapshot.recurrences:
        record = stored.get(recurrence.order)
        late_usage = None if record is None else late_usage_of(recurrence, record)
        if late_usage is not None:
            with_late_usage[recurrence.order] = late_usage
    return tuple(
        replace(record, energy_joules=found.energy_joules, time_seconds=found.time_seconds)
        if (found := with_late_usage.get((record.recurrence, record.attempt))) is not None
        else record
        for record in known_records(snapshot)
    )


def late_usage_of(recurrence: TrainingAttempt, record: ObservationRecord) -> LateUsage | None:
    """The usage of a recurrence that agents reported after its outcome; None if there is none."""
    spec, usage = recurrence.spec, recurrence.status.usage
    if usage is None:
        return None
    energy, time = float(usage.gpu_energy_joules), float(usage.duration_seconds)
    if (energy, time) == (record.energy_joules, record.time_seconds):
        return None
    return LateUsage(spec.job_ref.uid, spec.index, spec.attempt, energy, time)


def record_of(recurrence: TrainingAttempt, before: Sequence[ObservationRecord] = ()) -> ObservationRecord:
    """The record of an ended attempt.

    `before`: records of the job, of which those of the same recurrence are its earlier attempts.
    """
    spec, status = recurrence.spec, recurrence.status
    if status.result is None:
        raise ValueError(f"{recurrence.metadata.full_name} has not ended")
    progress = recurrence.progress
    usage = status.usage
    product, count = gpu_model_and_count(progress, usage)
    is_shared = usage is not None and usage.attribution is Attribution.SHARED
    epoch = EpochUsage() if is_shared else epoch_usage(spec, progress, usage, status.epochs)
    return ObservationRecord(
        job_uid=spec.job_ref.uid,
        namespace=recurrence.metadata.namespace,
        job_name=spec.job_ref.name,
        recurrence=spec.index,
        attempt=spec.attempt,
        recurrence_name=recurrence.metadata.name,
        batch_size=spec.batch_size,
        power_limit_watts=_limit_watts(recurrence),
        result=status.result.value,
        epochs=float(status.epochs or 0),
        metric=None if progress.metric is None else float(progress.metric),
        energy_joules=0.0 if usage is None else float(usage.gpu_energy_joules),
        time_seconds=0.0 if usage is None else float(usage.duration_seconds),
        max_power_watts=float(max_power_of(progress, usage) or 0),
        gpu_product=product,
        gpu_count=count,
        epoch_energy_joules=epoch.energy_joules,
        epoch_time_seconds=epoch.time_seconds,
        attribution=(Attribution.UNKNOWN if usage is None else usage.attribution).value,
        decision_kind=spec.decision.kind.value,
        reason=spec.decision.reason,
        scheduled_at=spec.scheduled_time,
        finished_at=ended_at(recurrence),
        template_digest=spec.template_digest,
        image_digest=status.image_digest,
        curve=progress.curve,
        parameters=sorted_values(spec.parameters),
        start_up_energy_joules=None if epoch.start_up is None else epoch.start_up.energy_joules,
        start_up_time_seconds=None if epoch.start_up is None else epoch.start_up.time_seconds,
        pipeline=None if status.frequency_plan is None else PipelineResult.of_status(status.frequency_plan),
        probe_trials=None if progress.probes is None else progress.probes.trials,
        probe_energy_joules=None if progress.probes is None else float(progress.probes.energy_joules),
        probe_time_seconds=None if progress.probes is None else float(progress.probes.time_seconds),
        measures_power_limits=spec.profile_power_limits,
        resumed=progress.curve is not None
        and any(
            each.curve is not None
            and (
                progress.curve.epochs[0] > each.curve.epochs[0] + SAME_EPOCH
                or _goes_on_from(progress.curve, each.curve)
            )
            for each in _earlier_attempts(spec, before)
        ),
        target_metric=spec.target.metric,
        target_direction=spec.target.direction.value,
        target_threshold=float(spec.target.threshold),
        target_evaluations=spec.target.consecutive_evaluations,
    )


def _earlier_attempts(
    spec: TrainingRecurrenceSpec, records: Iterable[ObservationRecord]
) -> Iterator[ObservationRecord]:
    """The earlier attempts of a recurrence in the same configuration: the evaluations of another one differ anyway."""
    parameters = sorted_values(spec.parameters)
    for each in records:
        is_earlier = each.recurrence == spec.index and each.attempt < spec.attempt
        if is_earlier and (each.batch_size, each.parameters) == (spec.batch_size, parameters):
            yield each


def gpu_model_and_count(progress: Progress, usage: Usage | None) -> tuple[str, int]:
    """Model and number of the GPUs of an attempt, from the source that reported them; empty and 0 without any."""
    if progress.gpus:
        return progress.gpu_product, devices_at_once(progress.gpus)
    if progress.agents is not None:
        return progress.agents.gpu_product, progress.agents.devices
    return ("", 0) if usage is None else (usage.gpu_product, usage.devices)


def sorted_values(parameters: Mapping[str, str]) -> ParameterValues:
    """Values of parameters in the form of records: in the order of their names."""
    return tuple(sorted(parameters.items()))


def ended_at(recurrence: TrainingRecurrence) -> datetime:
    """When an ended recurrence ended."""
    return recurrence.status.completion_time or recurrence.spec.scheduled_time


def power_profile_of(recurrence: TrainingAttempt) -> PowerProfileRecord | None:
    """The power limits that all ranks of a recurrence measured; None if there are too few to compare.

    None of a disrupted one, which may have been ended between two limits: the attempt that repeats it measures again.
    None of one whose GPUs others used, too.
    """
    progress, usage = recurrence.progress, recurrence.status.usage
    is_shared = any(gpu.shared for gpu in progress.gpus) or (
        usage is not None and usage.attribution is Attribution.SHARED
    )
    if recurrence.status.result is Result.DISRUPTED or is_shared:
        return None
    points = complete_points(progress)
    # Without the GPUs' model, later runs cannot tell whether the profile applies to them.
    product, count = gpu_model_and_count(progress, usage)
    if len(points) < MIN_MEASUREMENTS or not (product and count):
        return None
    key = PowerProfileKey(
        recurrence.spec.job_ref.uid, recurrence.spec.batch_size, product, count, recurrence.status.image_digest or ""
    )
    measurements = (
        PowerMeasurement(
            float(point.power_limit_watts), float(point.energy_joules), float(point.time_seconds), float(point.epochs)
        )
        for point in points
    )
    return PowerProfileRecord(key, tuple(measurements))


@once_per_snapshot
def known_profiles(snapshot: Snapshot) -> tuple[PowerProfileRecord, ...]:
    """All power profiles. The store has precedence over the objects."""
    known = {profile.key: profile for profile in snapshot.profiles}
    for recurrence in snapshot.recurrences:
        measured = power_profile_of(recurrence)
        if measured is not None and recurrence.status.result is not None:
            known.setdefault(measured.key, measured)
    return tuple(known.values())


def latest_gpus(records: Sequence[ObservationRecord]) -> tuple[str, int]:
    """Model and number of the GPUs of the latest attempt with GPUs. Empty and 0 if there is none."""
    latest = next((record for record in reversed(records) if record.gpu_product), None)
    return ("", 0) if latest is None else (latest.gpu_product, latest.gpu_count)


def observations(records: Iterable[ObservationRecord]) -> tuple[Observation, ...]:
    """The observations of informative outcomes whose energy is the attempt's alone."""
    known = (observation_of(record, False) for record in records)
    return tuple(observation for observation in known if observation is not None)


@once_per_record
def observation_of(record: ObservationRecord, from_other_job: bool) -> Observation | None:
    """The observation of an informative outcome whose energy is the attempt's alone; None of others.

    `from_other_job`: whether another job learns from it.
    """
    outcome = OUTCOMES.get(Result(record.result))
    if outcome is None:
        return None
    # The bill includes the trials of probes; what is learned does not.
    energy_joules = max(record.energy_joules - (record.probe_energy_joules or 0.0), 0.0)
    time_seconds = max(record.time_seconds - (record.probe_time_seconds or 0.0), 0.0)
    measured = has_cost(energy_joules, time_seconds, record.max_power_watts)
    # The energy of a part of its epochs says nothing of a whole training.
    measured &= record.attribution != Attribution.SHARED.value and not record.resumed
    ran = measured and record.epochs > 0 and record.metric is not None
    # A training that diverges in its first epoch has reported no metric.
    ran |= measured and outcome is Outcome.DIVERGED
    if outcome is not Outcome.CRASHED and not ran:
        return None
    return Observation(
        recurrence=record.recurrence,
        attempt=record.attempt,
        batch_size=record.batch_size,
        outcome=outcome,
        epochs=record.epochs,
        energy_joules=energy_joules,
        time_seconds=time_seconds,
        # A process that crashed before it used a GPU has no cost. Any positive power represents
        # that.
        max_power_watts=record.max_power_watts or 1.0,
        gpu_model=record.gpu_product,
        epoch_energy_joules=record.epoch_energy_joules,
        epoch_time_seconds=record.epoch_time_seconds,
        from_other_job=from_other_job,
        curve=record.curve,
        # A change of another job's training is no hint at a change of this one.
        template_digest="" if from_other_job else record.template_digest or "",
        image_digest="" if from_other_job else record.image_digest or "",
        parameters=record.parameters,
        start_up=None
        if record.start_up_energy_joules is None or record.start_up_time_seconds is None
        else StartUp(record.start_up_energy_joules, record.start_up_time_seconds),
    )


def _limit_watts(recurrence: TrainingAttempt) -> float | None:
    """The limit that an attempt ran with; None without one, and for an attempt that ended while it measured limits."""
    progress = recurrence.progress
    # Without its row, there is the limit that the object states, which is the chosen one.
    if recurrence.spec.profile_power_limits and recurrence.progress_version and not holds_chosen(progress):
        return None
    limit = recurrence.spec.power_limit_watts if progress == Progress() else progress.power_limit_watts
    return None if limit is None else float(limit)


def _goes_on_from(curve: MetricCurve, before: MetricCurve) -> bool:
    """Whether its first evaluation is nearer to the last one of the earlier attempt than to the first."""
    first, last = before.metrics[0], before.metrics[-1]
    return abs(curve.metrics[0] - last) < abs(curve.metrics[0] - first)


def parameters_of(spec: RecurringTrainingJobSpec) -> tuple[Parameter, ...]:
    """The further parameters of a job."""
    return tuple(Parameter(each.name, each.candidates, each.default) for each in spec.parameters)


def default_values(spec: RecurringTrainingJobSpec) -> dict[str, str]:
    """Default of each further parameter."""
    return {each.name: each.default for each in spec.parameters}


def default_configuration(spec: RecurringTrainingJobSpec) -> Configuration:
    """The configuration that runs first, and that savings are relative to."""
    return Configuration(spec.batch_size.default, tuple(default_values(spec).items()))


def configuration_of(
    spec: RecurringTrainingJobSpec, batch_size: int, values: Iterable[tuple[str, str]]
) -> Configuration | None:
    """The configuration of an attempt, with the parameters in the order of the job.

    `values`: its values of further parameters; one without a value had its default.

    None if the job no longer has one of the parameters.
    """
    given = dict(values)
    defaults = default_values(spec)
    if not given.keys() <= defaults.keys():
        return None
    return Configuration(batch_size, tuple((name, given.get(name, default)) for name, default in defaults.items()))
