"""Decides the batch size and power limit of an attempt. A decision is never changed.

What decides raises NoFeasibleArmError if no feasible batch size is left.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime

from wattloop.run.micro_batches import micro_batches
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.batch_size import BatchSizeScope, DecisionKind, LearningRateScaling, PolicyName
from wattloop_operator.api.meta import ObjectMeta
from wattloop_operator.api.power_fields import PowerMode
from wattloop_operator.api.recurring_training_job import Mode, RecurringTrainingJob, RecurringTrainingJobSpec
from wattloop_operator.api.recurring_training_job_status import NextRecurrence
from wattloop_operator.api.training_recurrence import DecisionRecord, JobReference, TrainingRecurrenceSpec
from wattloop_operator.domain.job_identity import history_uid, owner_of
from wattloop_operator.domain.names import JOB_LABEL, RECURRENCE_LABEL, recurrence_name
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.energy.attempt_usage import DECIMALS, plausible_cost
from wattloop_operator.reconcile.learning.advice import advice_text, expected_saving, has_estimate
from wattloop_operator.reconcile.learning.changed_job import is_warm_start, known_attempts, training_digest
from wattloop_operator.reconcile.learning.costs import default_cost
from wattloop_operator.reconcile.learning.guarded_job import excluded_configurations, is_comparison_due
from wattloop_operator.reconcile.learning.job_observations import known_records, parameters_of, sorted_values
from wattloop_operator.reconcile.learning.power_profiles import must_be_measured_again, selected_measurement
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.context_digest import context_digest
from wattloop_planner.bandit.feasible_arms import CRASH_BUDGET, crashes_in_a_row
from wattloop_planner.bandit.named_policies import policy_named
from wattloop_planner.bandit.policy import Arm, Decision, DecisionContext, NoFeasibleArmError, Policy, decision_seed

SAMPLE_SLOT = "dry-run"
# A job's uid makes its draws differ from those of other jobs.
SEED = 0
MAX_REASON_CHARACTERS = 1024
MEASURES = "; its first attempt measures power limits"
# Upper bound of the cost of a run, as a multiple of the expected cost of the cheapest known batch size, for every
# policy. A policy may stop a trial earlier.
MAX_COST_RATIO = 2.0


@dataclass(frozen=True)
class Attempt:
    """An attempt to decide.

    Attributes:
        attempt: Index of the attempt within it.
    """

    index: int
    attempt: int
    slot: str
    scheduled: datetime


@dataclass(frozen=True)
class Prescribed:
    """A configuration that an attempt must run."""

    configuration: Configuration
    reason: str


def decision_context(snapshot: Snapshot, index: int, attempt: int) -> DecisionContext:
    """Everything that the policy decides an attempt from.

    A disruption says nothing, so an attempt after a disrupted one has the index and the seed of that one.
    """
    job, spec = snapshot.job, snapshot.job.spec
    attempt -= _disrupted_before(snapshot, index, attempt)
    known = known_attempts(snapshot)
    active = (each.spec for each in snapshot.recurrences if each.status.result is None)
    running = sorted((each.batch_size, sorted_values(each.parameters)) for each in active)
    if spec.mode is Mode.ADVISE:
        # The advice is for the next recurrence. What runs meanwhile does not depend on it.
        running = []
    return DecisionContext(
        batch_sizes=tuple(sorted(spec.batch_size.candidates)),
        default_batch_size=spec.batch_size.default,
        eta=spec.objective.energy_weight_percent / 100,
        recurrence=index,
        attempt=attempt,
        observations=known.of_source + known.observations,
        seed=decision_seed(history_uid(job), index, attempt, SEED),
        running=tuple(Configuration(size, values) for size, values in running),
        gpu_model=known.gpu_product,
        remaining_recurrences=None if spec.max_recurrences is None else max(spec.max_recurrences - index, 1),
        max_epochs=spec.objective.max_epochs,
        target=spec.objective.target.run_target,
        excluded=excluded_configurations(snapshot),
        parameters=parameters_of(spec),
    )


def _disrupted_before(snapshot: Snapshot, index: int, attempt: int) -> int:
    if not attempt:
        return 0
    earlier = (each for each in known_records(snapshot) if each.recurrence == index and each.attempt < attempt)
    return sum(each.result == Result.DISRUPTED.value for each in earlier)


def review_context(snapshot: Snapshot, recurrence: TrainingAttempt) -> DecisionContext:
    """The context of the decision of a running attempt, with what has become known since.

    Target, limit of epochs and weight of energy are those of the attempt, although the job may have others by now: the
    attempt is judged by what it was started for, and attempts with the job's new target are converted to the attempt's.
    Outcomes of recurrences that were decided later, and ended earlier, count too: a review need not be repeatable, and
    they say more about the other arms. The candidates are the job's present ones and the attempt's own.
    """
    spec, job = recurrence.spec, snapshot.job
    objective = job.spec.objective
    objective = objective.model_copy(
        update={
            "target": objective.target.model_copy(update=dict(spec.target)),
            "max_epochs": spec.max_epochs,
            "energy_weight_percent": spec.energy_weight_percent,
        }
    )
    candidates = tuple(sorted({*job.spec.batch_size.candidates, spec.batch_size}))
    batch_size = job.spec.batch_size.model_copy(update={"candidates": candidates})
    job_spec = job.spec.model_copy(update={"objective": objective, "batch_size": batch_size})
    others = tuple(each for each in snapshot.recurrences if each.metadata.name != recurrence.metadata.name)
    of_attempt = replace(snapshot, job=job.model_copy(update={"spec": job_spec}), recurrences=others)
    return decision_context(of_attempt, spec.index, spec.attempt)


@contextmanager
def policy_of(snapshot: Snapshot, context: DecisionContext) -> Iterator[Policy]:
    """The policy of a job; its model may be that of an earlier decision, which it only updates."""
    name, settings = _policy_settings(snapshot.job.spec)
    key = (history_uid(snapshot.job), name, tuple(sorted(settings.items())))
    with snapshot.policies.policy(key, lambda: policy_named(name, **settings), len(context.space)) as policy:
        yield policy


def policy_decision(snapshot: Snapshot, context: DecisionContext) -> Decision:
    """The decision of the job's policy."""
    with policy_of(snapshot, context) as policy:
        return policy.decide(context)


def may_run(snapshot: Snapshot, context: DecisionContext, configuration: Configuration) -> bool:
    """Whether a job chooses a configuration, or could run it besides its choice: nothing has excluded it."""
    spec = snapshot.job.spec
    _, decision = _decision(snapshot, context)
    if configuration == decision.configuration:
        return True
    if not spec.chooses:
        return False
    if spec.batch_size.policy is PolicyName.ZEUS and not decision.arms:
        # While it prunes, it uses no result of another size than the one that it requests.
        return False
    arm = context.space.index(configuration.batch_size, configuration.parameters)
    crashes = crashes_in_a_row(context.space, context.observations)
    if arm is None or arm in context.arms_excluded or crashes.get(arm, 0) >= CRASH_BUDGET:
        return False
    # Before any run has reached the target, a policy lists no arms.
    return not decision.arms or any(each.configuration == configuration and not each.pruned for each in decision.arms)


def _policy_settings(spec: RecurringTrainingJobSpec) -> tuple[str, dict[str, float]]:
    if spec.mode is Mode.FIXED:
        return "default", {"max_cost_ratio": MAX_COST_RATIO}
    if spec.batch_size.policy is PolicyName.ZEUS:
        # Its stopping cost is this multiple of the lowest cost, which is at most the expected one.
        return "zeus", {"beta": MAX_COST_RATIO}
    return "thompsonSampling", {"max_cost_ratio": MAX_COST_RATIO}


def decide(snapshot: Snapshot, attempt: Attempt, prescribed: Prescribed | None = None) -> TrainingAttempt:
    """Decide one attempt.

    `prescribed`: a configuration to run instead of the policy's choice, if the job still offers it.
    """
    context = decision_context(snapshot, attempt.index, attempt.attempt)
    kind, decision = _decision(snapshot, context)
    if prescribed is not None and _is_offered(context, prescribed.configuration):
        size, parameters = prescribed.configuration.batch_size, prescribed.configuration.parameters
        decision = replace(decision, batch_size=size, parameters=parameters, reason=prescribed.reason)
    job, spec = snapshot.job, snapshot.job.spec
    limit_watts, profile = _power_limit_of(snapshot, kind, decision)
    return TrainingAttempt(
        metadata=_metadata(job, attempt),
        spec=TrainingRecurrenceSpec(
            job_ref=JobReference(name=job.metadata.name, uid=history_uid(job)),
            index=attempt.index,
            attempt=attempt.attempt,
            slot=attempt.slot,
            scheduled_time=attempt.scheduled,
            batch_size=decision.batch_size,
            power_limit_watts=limit_watts,
            profile_power_limits=profile,
            max_epochs=spec.objective.max_epochs,
            target=spec.objective.target.of_attempt,
            learning_rate_scale=learning_rate_scale(spec, decision.batch_size, snapshot.devices),  # type: ignore[arg-type]  # validated
            stop_cost_joules=None if decision.stop_cost_joules is None else plausible_cost(decision.stop_cost_joules),  # type: ignore[arg-type]  # validated into a decimal
            energy_weight_percent=spec.objective.energy_weight_percent,
            parameters=dict(decision.parameters),
            reporting=spec.reporting,
            template_digest=training_digest(snapshot),
            progress_deadline_seconds=spec.progress_deadline_seconds,
            warm_start=is_warm_start(job),
            output_directory=None if spec.output is None else spec.output.directory,
            decision=_decision_record(spec.batch_size.policy, kind, decision, context),
        ),
    )


def next_recurrence(snapshot: Snapshot, context: DecisionContext, chosen: Decision) -> NextRecurrence:
    """What would be decided for the first attempt of a recurrence that does not exist; in mode Advise, the advice."""
    if snapshot.job.spec.mode is Mode.ADVISE:
        kind, decision = DecisionKind.ADVISE, chosen
        limit_watts, measures = _power_limit(snapshot, chosen.batch_size)[0], False
    else:
        kind, decision = _decision(snapshot, context, chosen)
        limit_watts, measures = _power_limit_of(snapshot, kind, decision)
    arms = _arms_with(snapshot, context, decision, chosen.arms)
    saving, unknown = expected_saving(snapshot, context, decision, arms)
    costs = _expected_costs(snapshot, context, decision, arms)
    savings = (None,) * 3 if saving is None else (saving.value, saving.low, saving.high)
    reason = decision.reason[: MAX_REASON_CHARACTERS - len(MEASURES)]
    return NextRecurrence.model_validate(
        {
            "batch_size": decision.batch_size,
            "parameters": dict(decision.parameters),
            "power_limit_watts": limit_watts,
            "kind": kind,
            "reason": f"{reason}{MEASURES}" if measures else reason,
            **dict(zip(("cost_joules", "low_cost_joules", "high_cost_joules"), map(rounded_cost, costs), strict=True)),
            **{
                name: None if value is None else round(value, 2)
                for name, value in zip(
                    ("saving_percent", "low_saving_percent", "high_saving_percent"), savings, strict=True
                )
            },
            "unknown": "; ".join(unknown)[:512],
        }
    )


def _expected_costs(
    snapshot: Snapshot, context: DecisionContext, decision: Decision, arms: tuple[Arm, ...]
) -> tuple[float | None, float | None, float | None]:
    for each in arms:
        if each.configuration == decision.configuration:
            return each.mean_cost_joules, each.low_cost_joules, each.high_cost_joules
    is_default = decision.configuration == context.space.configurations[context.space.default]
    default = default_cost(snapshot) if is_default else None
    return (None, None, None) if default is None else (default.of_run.value, default.of_run.low, default.of_run.high)


def rounded_cost(cost_joules: float | None) -> float | None:
    """A cost as a status has it; None if it is not known, or more than a number of a status can be."""
    return None if cost_joules is None or cost_joules >= 10**15 else round(cost_joules, DECIMALS)


def _arms_with(
    snapshot: Snapshot, context: DecisionContext, decision: Decision, arms: tuple[Arm, ...]
) -> tuple[Arm, ...]:
    """Estimates of the costs of the decided and the default configuration.

    A policy that models no cost has none of what never ran, so the model of the other one is asked.
    """
    default = context.space.configurations[context.space.default]
    known = all(has_estimate(arms, each) for each in (decision.configuration, default))
    if known or decision.configuration == default or snapshot.job.spec.models_cost:
        return arms
    with suppress(NoFeasibleArmError):
        return policy_named("thompsonSampling").decide(replace(context, attempt=0)).arms or arms
    return arms


def _is_offered(context: DecisionContext, configuration: Configuration) -> bool:
    return context.space.index(configuration.batch_size, configuration.parameters) is not None


def _can_measure_limits(snapshot: Snapshot) -> bool:
    """Whether limits can be changed during a training: by the client, or where its epochs are seen at once."""
    reporting = snapshot.job.spec.reporting
    by_output = snapshot.measures_limits_by_output and reporting.shows_epochs
    return reporting.uses_client or by_output


def _decision(
    snapshot: Snapshot, context: DecisionContext, chosen: Decision | None = None
) -> tuple[DecisionKind, Decision]:
    """The decision to carry out, and its kind.

    `chosen`: what the job's policy decides from it; None: the policy is asked if it is needed.
    """
    spec = snapshot.job.spec
    if spec.mode is Mode.ADVISE:
        return DecisionKind.ADVISE, _default_decision(snapshot, context, chosen)
    if spec.mode is Mode.FIXED:
        return DecisionKind.FIXED, chosen or policy_decision(snapshot, context)
    if context.attempt == 0 and is_comparison_due(snapshot):
        try:
            decision = policy_named("default").decide(context)
        except NoFeasibleArmError:
            # A default that crashes has no final metric.
            pass
        else:
            reason = (
                f"batch size {decision.configuration}, the default: objective.target.tolerance compares its final "
                "metric with those of the other batch sizes"
            )
            return DecisionKind.COMPARISON, replace(decision, reason=reason)
    decision = chosen or policy_decision(snapshot, context)
    return DecisionKind(decision.kind.value.capitalize()), decision


def _default_decision(snapshot: Snapshot, context: DecisionContext, chosen: Decision | None) -> Decision:
    try:
        decision = policy_named("default").decide(context)
    except NoFeasibleArmError:
        size = context.space.configurations[context.space.default]
        crashes = crashes_in_a_row(context.space, context.observations)
        raise NoFeasibleArmError(
            f"the default batch size {size} crashed {crashes[context.space.default]} times in a row, and "
            "mode Advise runs no other; check the logs of the last attempts, then fix the training"
        ) from None
    try:
        text = advice_text(next_recurrence(snapshot, context, chosen or policy_decision(snapshot, context)))
    except NoFeasibleArmError as error:
        text = f"nothing ({error})"
    return replace(decision, reason=f"mode Advise runs the default configuration; advised is {text}")


def sample_decision(snapshot: Snapshot, now: datetime) -> TrainingAttempt | None:
    """A decision of the job that is never run: a backend validates the workload's template with it.

    The decision; None if no feasible batch size is left, so that nothing would be started.
    """
    try:
        return decide(snapshot, Attempt(0, 0, SAMPLE_SLOT, now))
    except NoFeasibleArmError:
        return None


def _metadata(job: RecurringTrainingJob, attempt: Attempt) -> ObjectMeta:
    name = recurrence_name(job.metadata.name, attempt.index, attempt.slot, attempt.attempt)
    return ObjectMeta(
        name=name,
        namespace=job.metadata.namespace,
        labels={JOB_LABEL: job.metadata.name, RECURRENCE_LABEL: name},
        owner_references=(owner_of(job),),
    )


def _decision_record(
    policy: PolicyName, kind: DecisionKind, decision: Decision, context: DecisionContext
) -> DecisionRecord:
    return DecisionRecord(
        policy=policy,
        kind=kind,
        reason=decision.reason[:MAX_REASON_CHARACTERS],
        seed=str(context.seed),
        digest=context_digest(context),
        last_attempt=decision.last_attempt,
    )


def learning_rate_scale(spec: RecurringTrainingJobSpec, batch_size: int, devices: int) -> float:
    """Factor of the learning rate at a batch size, relative to the default one.

    It follows what is trained: both batch sizes rounded as the training rounds them for its devices.

    `devices`: GPUs that share a global batch; 0 if there are none or if that is not known.
    """
    sizes = spec.batch_size
    shared = devices if devices and sizes.scope is BatchSizeScope.GLOBAL else 1
    trained, default = (micro_batches(each, shared).global_batch_size for each in (batch_size, sizes.default))
    ratio = trained / default
    match sizes.learning_rate_scaling:
        case LearningRateScaling.LINEAR:
            return ratio
        case LearningRateScaling.SQUARE_ROOT:
            return math.sqrt(ratio)
        case _:
            return 1.0


def _power_limit_of(snapshot: Snapshot, kind: DecisionKind, decision: Decision) -> tuple[int | None, bool]:
    if kind is DecisionKind.ADVISE:
        return None, False
    limit_watts, profile = _power_limit(snapshot, decision.batch_size)
    return limit_watts, profile and _can_measure_limits(snapshot)


def _power_limit(snapshot: Snapshot, batch_size: int) -> tuple[int | None, bool]:
    power = snapshot.job.spec.power
    if power.mode is PowerMode.FIXED:
        return power.watts, False
    if power.mode is PowerMode.NONE:
        return None, False
    known = known_attempts(snapshot)
    profile = known.profile(batch_size)
    if profile is None or must_be_measured_again(known.records, known.profiles, profile):
        return None, True
    return round(selected_measurement(snapshot.job.spec, profile).power_limit_watts), False
