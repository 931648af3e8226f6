"""The state of a pipeline: its registered ranks, its profile, its frontier, and what its ranks are to do.

A pipeline is one attempt of a job whose ranks register with the plan service.
"""

import functools
import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

from pydantic.dataclasses import dataclass as pydantic_dataclass

from wattloop.pipeline.free_iterations import FreeIterations
from wattloop.pipeline.knobs import KnobChoices
from wattloop.pipeline.plan_messages import FREE, PLAN, InstructionMeasurement, RankRegistration, RankReport
from wattloop_operator.api.frequency_plan import FrequencyPlanSpec
from wattloop_operator.domain.record_fields import RECORD, Count, Name, StoredRecord, Text

# A registration lists its instructions; of more ranks, the messages alone would keep an operator busy.
MAX_RANKS = 4_096
# Bounds the stored profile: the newest processes of each rank are kept.
MAX_PROCESSES_PER_RANK = 8
# Of one attempt: a job that restarts with other degrees has a new profile each time.
MAX_PROFILES_OF_ATTEMPT = 4
# Ranks on one kind of GPU may hold the same clocks. Each list is stored with the instructions of its rank.
MAX_CLOCK_LISTS = 8
MAX_FRONTIER_POINTS, MIN_FRONTIER_POINTS = 64, 3
# Of a frontier, in memory 40 MB: with more instructions it has fewer points.
MAX_PLANNED_CLOCKS = 1_000_000
# In memory 46 MB, and 65 MB while they are read. A pipeline of 1,000 ranks has about 64,000 measurements.
MAX_PROFILE_MEASUREMENTS = 100_000
# A graph of more instructions would take the planner over 200 MB.
MAX_PIPELINE_INSTRUCTIONS = 100_000
# Of all pipelines together, in each cache of what follows from a sequence of instructions.
MAX_CACHED_INSTRUCTIONS = 2 * MAX_PIPELINE_INSTRUCTIONS


def max_points(instructions: int) -> int:
    """The most plans that the frontier of a pipeline of so many instructions has."""
    return min(MAX_FRONTIER_POINTS, max(MIN_FRONTIER_POINTS, MAX_PLANNED_CLOCKS // max(instructions, 1)))


@dataclass(frozen=True)
class PipelineKey:
    """The attempt that runs a pipeline.

    Attributes:
        job_uid: UID of the RecurringTrainingJob.
        recurrence: Index of the recurrence, from 0.
        attempt: Index of the attempt within it, from 0.
    """

    job_uid: str
    recurrence: int
    attempt: int


@pydantic_dataclass(frozen=True, config=RECORD)
class PipelineProfileKey(StoredRecord):
    """What a profile of instructions applies to: the same work on the same kind of GPUs.

    Attributes:
        job_uid: UID of the RecurringTrainingJob.
        batch_size: Batch size of the attempt, which decides the size of a microbatch.
        model: Digest or name of the model, as the ranks register it; empty if unknown.
        partition: Digest of degrees, stages, microbatches and schedule; see `partition_digest`.
        gpu_product: Product name of the GPUs.
        image_digest: Digest of the training image; empty if it is not known.

    Raises:
        InputError: A value is invalid.
    """

    source: ClassVar[str] = "profile of the pipelines of job {job_uid}, batch size {batch_size}"

    job_uid: Name
    batch_size: Count
    model: Text
    partition: Name
    gpu_product: Text
    image_digest: Text = ""


@dataclass(frozen=True)
class RankMeasurements:
    """What one process of a rank has measured, cumulative over the process.

    Attributes:
        rank: Global rank.
        process: Identity of the process.
        pipeline_rank: Its place in the pipeline.
        profiled: Whether it has measured every clock that it was to measure.
        blocking_watts: Power of all its GPUs while it waits; None if unknown.
        measurements: Time and energy by kind, stage and clock.
        sequence: Number of the report that has them.
    """

    rank: int
    process: str
    pipeline_rank: int
    profiled: bool
    blocking_watts: float | None
    measurements: tuple[InstructionMeasurement, ...]
    sequence: int = 0

    @functools.cached_property
    def measured(self) -> dict[int, set[tuple[str, int]]]:
        """Kinds and stages of which the energy is known, by clock. Computed once: a report changes one process."""
        found: dict[int, set[tuple[str, int]]] = defaultdict(set)
        for each in self.measurements:
            if each.energy_joules is not None:
                found[each.megahertz].add((each.kind, each.stage))
        return found


@dataclass(frozen=True)
class PipelineProfile:
    """The measurements of all processes that have run a pipeline's key, of earlier recurrences too.

    Attributes:
        key: What it applies to.
        processes: Measurements by rank and process.
    """

    key: PipelineProfileKey
    processes: Mapping[tuple[int, str], RankMeasurements] = field(default_factory=dict)

    @functools.cached_property
    def measured(self) -> dict[int, dict[int, set[tuple[str, int]]]]:
        """Kinds and stages of which the energy is known, by pipeline rank and clock.

        Computed once for a profile: most reports of a pipeline that runs a plan leave its profile as it is.
        """
        found: dict[int, dict[int, set[tuple[str, int]]]] = defaultdict(lambda: defaultdict(set))
        for process in self.processes.values():
            by_clock = found[process.pipeline_rank]
            for clock, kinds in process.measured.items():
                by_clock[clock] |= kinds
        return found

    @functools.cached_property
    def profiled_pipeline_ranks(self) -> frozenset[int]:
        """The pipeline ranks of which a process has measured every clock that it was to measure."""
        return frozenset(process.pipeline_rank for process in self.processes.values() if process.profiled)

    @functools.cached_property
    def processes_json(self) -> str:
        """The processes that a plan is made of, for its digest."""
        profiled = sorted([*pair, each.profiled] for pair, each in self.processes.items() if each.profiled)
        return json.dumps(profiled or sorted([*pair, False] for pair in self.processes))


@dataclass(frozen=True)
class FrontierPoint:
    """A plan: time and energy of an iteration of one pipeline, and the clocks of its ranks.

    Attributes:
        time_seconds: Planned time of an iteration.
        energy_joules: Planned energy of all pipeline ranks, waiting included.
        clocks_megahertz: Clock of each instruction in execution order, by pipeline rank.
        knob_choices: Index into the frontier's `knob_settings` of each instruction, likewise; empty without knobs.
    """

    time_seconds: float
    energy_joules: float
    clocks_megahertz: tuple[tuple[int, ...], ...]
    knob_choices: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Excess:
    """How much more one side takes than the other.

    Attributes:
        percent: In percent of the other side; negative if it takes less.
        error_percent: Standard error, in points of percent; ±1.96 of it are an interval of 95 %.
    """

    percent: float
    error_percent: float


@dataclass(frozen=True)
class WithdrawnPoint:
    """A plan that was measured to cost more than it saves.

    Attributes:
        point: Its index among the points of the frontier.
        reason: What was measured, and what to do next.
        recurrence: Name of the TrainingRecurrence that measured it.
        time: Time under the plan beyond that at free clocks; None if it is not known.
        energy: The same of the energy.
    """

    point: int
    reason: str
    recurrence: str = ""
    time: Excess | None = None
    energy: Excess | None = None


@dataclass(frozen=True)
class PipelineFrontier:
    """The plans of a profile, or the reason why there are none.

    Attributes:
        profile_digest: Digest of the profile and the instructions that it was planned from.
        points: Plans, slowest first, none dominated; at most `MAX_FRONTIER_POINTS`.
        highest_clocks: Time and energy with every instruction at its highest measured clock.
        blocking_watts: Power of a rank that waits.
        problem: Why the planner found no plan; empty if it did.
        planned_at: When the planner finished.
        notes: Anomalies of the profile, such as ranks that disagree.
        retry_at: When the planner is started again after it has ended without a result; None: it has a result.
        knobs: Names of the knobs of its instructions, which only a user's plan has.
        knob_settings: The combinations of values of the knobs.
        withdrawn: The plans that do not run any more, as long as the profile is the same.
    """

    profile_digest: str
    points: tuple[FrontierPoint, ...] = ()
    highest_clocks: FrontierPoint | None = None
    blocking_watts: float = 0.0
    problem: str = ""
    planned_at: datetime | None = None
    retry_at: datetime | None = None
    notes: tuple[str, ...] = ()
    knobs: tuple[str, ...] = ()
    knob_settings: tuple[tuple[str, ...], ...] = ()
    withdrawn: tuple[WithdrawnPoint, ...] = ()

    @property
    def stored_digest(self) -> str:
        """Digest by which replicas notice a change: of the profile and the withdrawn plans."""
        return "-".join((self.profile_digest, *(str(each.point) for each in self.withdrawn)))

    def withdrawal(self, point: int) -> WithdrawnPoint | None:
        """Why a plan does not run any more; None if it may."""
        return next((each for each in self.withdrawn if each.point == point), None)

    def rank_knobs(self, point: int, pipeline_rank: int) -> KnobChoices | None:
        """The knobs of a rank's instructions under a plan; None if it has none."""
        if not self.knobs:
            return None
        return KnobChoices(self.knobs, self.knob_settings, self.points[point].knob_choices[pipeline_rank])


@dataclass(frozen=True)
class PipelineRank:
    """A rank as its current process has registered and last reported.

    Attributes:
        registration: What it runs.
        registered_at: When the process registered.
        heard_at: When its newest message arrived.
        report: Its newest report without the measurements; None before the first.
        recent_iteration_seconds: Mean time of the iterations between its two newest reports under the same
            directive; None if not known.
        refused_at: When it last said that it cannot hold the clocks of a directive; None if it never did.
    """

    registration: RankRegistration
    registered_at: datetime
    heard_at: datetime
    report: RankReport | None = None
    recent_iteration_seconds: float | None = None
    refused_at: datetime | None = None

    @property
    def iteration_seconds(self) -> float | None:
        """Time of an iteration lately, or else since the registration; None before the first iteration."""
        if self.recent_iteration_seconds is not None:
            return self.recent_iteration_seconds
        if self.report is None or not self.report.iterations:
            return None
        return (self.heard_at - self.registered_at).total_seconds() / self.report.iterations or None

    @property
    def acknowledged(self) -> int:
        """Number of the newest directive that the process has received."""
        return 0 if self.report is None else self.report.directive

    @property
    def finished(self) -> bool:
        """Whether the process has sent its last report."""
        return self.report is not None and self.report.finished

    @property
    def mismatch(self) -> str:
        """How its instructions differ from the registered ones; empty if they do not."""
        return "" if self.report is None else self.report.mismatch


@dataclass(frozen=True)
class IssuedDirective:
    """What the ranks of a pipeline are to do; `wattloop.pipeline.plan_messages.Directive` is made of it for each rank.

    Attributes:
        number: Rises with each change within an attempt.
        mode: Free, Profile or Plan.
        reason: Why.
        first_iteration: When all ranks begin with it; None until each has acknowledged its number.
        clocks_megahertz: With Profile, the clocks to measure, in order.
        iterations_per_clock: With Profile, the iterations measured at each clock.
        profile_digest: With Plan, the frontier that the points are of.
        point: With Plan, index of the chosen point of the frontier.
        straggler_point: Index of the point that pipelines run that wait for a straggler; None without one.
        stragglers: Data ranks of the pipelines that are stragglers; these run `point`.
        issued_at: When it was issued.
        free: With Plan, which iterations run at free clocks; None beside a straggler.
        compared_cycles: With Plan, the cycles of these iterations after which their cost was looked at last.
    """

    number: int = 0
    mode: str = FREE
    reason: str = ""
    first_iteration: int | None = None
    clocks_megahertz: tuple[int, ...] = ()
    iterations_per_clock: int = 1
    profile_digest: str = ""
    point: int | None = None
    straggler_point: int | None = None
    stragglers: tuple[int, ...] = ()
    issued_at: datetime | None = None
    free: FreeIterations | None = None
    compared_cycles: int = 0


@dataclass(frozen=True)
class Straggler:
    """A pipeline that is slower than its plan, so that the others wait for it.

    Attributes:
        iteration_seconds: Time of its iteration.
        plan_seconds: The time that a plan beside it may take. Iterations take longer than planned by what a plan
            leaves out, such as the optimizer's step; the excess of the other pipelines is taken off.
        reason: What was noticed or announced.
        announced: Whether a caller announced it; otherwise iteration times showed it.
        data_ranks: Data ranks of the slow pipelines; empty if they are not known.
        since: When it was first seen.
        noticed: Whether it has lasted long enough to act on it.
    """

    iteration_seconds: float
    plan_seconds: float
    reason: str
    announced: bool
    data_ranks: tuple[int, ...] = ()
    since: datetime | None = None
    noticed: bool = True


@dataclass(frozen=True)
class PlanChoice:
    """Which point of the frontier a job runs.

    Attributes:
        mode: `Fastest`, `Deadline` or `Cost`.
        deadline_seconds: With Deadline, the longest time of an iteration.
        energy_weight: With Cost, the job's η, from 0 to 1.
        max_power_watts: With Cost, the sum of the maximum power limits of all GPUs of the attempt; 0 if it is not
            known; with Cost no time is lost then.
    """

    mode: str = "Fastest"
    deadline_seconds: float | None = None
    energy_weight: float = 0.5
    max_power_watts: float = 0.0


@dataclass(frozen=True)
class GivenPlan:
    """A FrequencyPlan of the user, which ranks run instead of one that is planned from their profile.

    Attributes:
        name: Its name.
        digest: Digest of its spec.
        spec: Its spec; None if it cannot be used.
        problem: Why it cannot be used; empty if it may.
    """

    name: str
    digest: str
    spec: FrequencyPlanSpec | None = None
    problem: str = ""


@dataclass(frozen=True)
class JobPlan:
    """How a job plans its pipelines.

    Attributes:
        enabled: Whether its ranks are profiled and run plans.
        choice: Which point of the frontier they run.
        given: The user's plan; None if the operator plans.
    """

    enabled: bool = True
    choice: PlanChoice = PlanChoice()
    given: GivenPlan | None = None


@dataclass(frozen=True)
class PipelineState:
    """All that is known of a pipeline.

    Attributes:
        key: The attempt.
        namespace: Namespace of its TrainingRecurrence.
        name: Name of its TrainingRecurrence.
        batch_size: Batch size of the attempt, as each message brings it.
        image_digest: Digest of the training image; empty if it is not known.
        ranks: The registered ranks by global rank.
        profile: The stored profile; None before the first registration.
        frontier: The plans; None until the planner has finished.
        directive: What the ranks are to do.
        straggler: The present straggler; None if there is none.
        job_plan: How the job plans it; its given plan is not stored here.
        profile_keys: The profiles that the attempt has used; at most `MAX_PROFILES_OF_ATTEMPT`.
        waits_for_plan: Whether the profile is complete and the planner has not planned it yet.
    """

    key: PipelineKey
    namespace: str
    name: str
    batch_size: int = 1
    image_digest: str = ""
    ranks: Mapping[int, PipelineRank] = field(default_factory=dict)
    profile: PipelineProfile | None = None
    frontier: PipelineFrontier | None = None
    directive: IssuedDirective = IssuedDirective()
    straggler: Straggler | None = None
    job_plan: JobPlan = JobPlan()
    profile_keys: tuple[PipelineProfileKey, ...] = ()
    waits_for_plan: bool = False

    @property
    def running_frontier(self) -> PipelineFrontier | None:
        """The frontier that the points of the present directive are of; None without a plan, or if it was replaced."""
        issued, frontier = self.directive, self.frontier
        if issued.mode != PLAN or issued.point is None or frontier is None:
            return None
        last = max(issued.point, issued.point if issued.straggler_point is None else issued.straggler_point)
        fits = issued.profile_digest == frontier.profile_digest and last < len(frontier.points)
        return frontier if fits else None

    @property
    def registration(self) -> RankRegistration:
        """A registration, for what all ranks register alike. Call it with a state that has ranks."""
        return next(iter(self.ranks.values())).registration

    @property
    def expected_ranks(self) -> int:
        """Number of ranks of the job; 0 before the first registration."""
        return self.registration.ranks if self.ranks else 0

    @property
    def pipelines(self) -> int:
        """Number of pipelines, each with one rank of every pipeline rank. Call it with a state that has ranks."""
        return self.registration.ranks // self.registration.pipeline_parallel


def partition_digest(registration: RankRegistration) -> str:
    """Digest of what divides the model: degrees, stages, microbatches, schedule."""
    parts = (
        registration.data_parallel,
        registration.tensor_parallel,
        registration.pipeline_parallel,
        registration.stages,
        registration.microbatches,
        registration.schedule,
    )
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
