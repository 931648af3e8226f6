"""The metric guard of a job (`spec.objective.target.tolerance`): its verdicts, and its comparison runs.

Only attempts with the present target and template count, and none that the user forgot. So a change
of either or of `spec.learnSince`, or another tolerance starts the comparison again.
"""

from collections.abc import Iterable

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.objective import Direction
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.domain.snapshot import Snapshot, once_per_snapshot
from wattloop_operator.reconcile.learning.changed_job import known_attempts, training_digest
from wattloop_operator.reconcile.learning.job_observations import configuration_of, default_configuration
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.metric_guard import MIN_DEFAULT_RUNS, WINDOW, GuardResult, Shortfall, guard_result

# A comparison run of the default follows this many attempts with other batch sizes.
ATTEMPTS_PER_COMPARISON = 3


@once_per_snapshot
def guard_of(snapshot: Snapshot) -> GuardResult[Configuration] | None:
    """What is known of the final metrics of a job's configurations; None if the job has no guard."""
    job = snapshot.job
    target = job.spec.objective.target
    if target.tolerance is None:
        return None
    return guard_result(
        [
            (configuration, record.metric)
            for record in _comparable(snapshot)
            if record.result == Result.REACHED.value
            and record.metric is not None
            and (configuration := configuration_of(job.spec, record.batch_size, record.parameters)) is not None
        ],
        default_configuration(job.spec),
        margin=float(target.tolerance),
        maximize=target.direction is Direction.MAXIMIZE,
    )


def excluded_configurations(snapshot: Snapshot) -> tuple[Configuration, ...]:
    """The configurations whose final metrics fall short of the default's, in order."""
    guard = guard_of(snapshot)
    return () if guard is None else sorted_configurations(guard.short)


def sorted_configurations(configurations: Iterable[Configuration]) -> tuple[Configuration, ...]:
    """The configurations by rising batch size, then by the values of their parameters."""
    return tuple(sorted(configurations, key=lambda each: (each.batch_size, each.parameters)))


def is_comparison_due(snapshot: Snapshot) -> bool:
    """Whether the next recurrence runs the default batch size, so that the guard can compare.

    A policy that has found a cheaper batch size may never run the default again. So one recurrence in
    four runs it while a batch size with enough final metrics cannot be compared, or is worse by more
    than the tolerance, which may be chance.
    """
    guard = guard_of(snapshot)
    if guard is None or not guard.comparable:
        return False
    needed = WINDOW if guard.suspected else MIN_DEFAULT_RUNS
    if guard.default_runs >= needed:
        return False
    spec = snapshot.job.spec
    default = default_configuration(spec)
    ran = [configuration_of(spec, each.batch_size, each.parameters) for each in _comparable(snapshot)]
    active = (each.spec for each in snapshot.recurrences if each.status.result is None)
    running = sum(configuration_of(spec, each.batch_size, each.parameters.items()) == default for each in active)
    tries = ran.count(default)
    return len(ran) - tries >= ATTEMPTS_PER_COMPARISON * (tries + running + 1)


def shortfall_text(configuration: Configuration, shortfall: Shortfall, snapshot: Snapshot) -> str:
    """A verdict as a phrase for users."""
    target, default = snapshot.job.spec.objective.target, default_configuration(snapshot.job.spec)
    return (
        f"batch size {configuration} ends at {target.metric} {shortfall.mean:.6g} (mean of {shortfall.runs} "
        f"runs), worse by more than {target.tolerance or 0:f} than {shortfall.default_mean:.6g} with the default batch "
        f"size {default} ({shortfall.default_runs} runs)"
    )


def _comparable(snapshot: Snapshot) -> tuple[ObservationRecord, ...]:
    """The attempts whose final metrics are comparable: those with the present target and template.

    A disrupted one has none, and is repeated by its retry.
    """
    return tuple(
        record
        for record in known_attempts(snapshot).current
        if record.template_digest in (None, training_digest(snapshot)) and record.result != Result.DISRUPTED.value
    )
