"""Ranks of a pipeline that train in virtual time, and the operator's state that their messages lead to."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from support.pipelines.registrations import rank_registration
from wattloop.pipeline.free_iterations import MAX_GROUPS, ComparedCycles, joined
from wattloop.pipeline.plan_messages import (
    FREE,
    PLAN,
    PROFILE,
    Directive,
    InstructionMeasurement,
    RankRegistration,
    RankReport,
)
from wattloop_operator.reconcile.pipeline.frontier_planning import plan_frontier
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineKey, PipelineState
from wattloop_operator.reconcile.pipeline.profile import planning_request
from wattloop_operator.reconcile.pipeline.rank_directives import decided, directive_for, needs_plan
from wattloop_operator.reconcile.pipeline.registrations import Registrar
from wattloop_operator.reconcile.pipeline.reports import with_report

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
NEW_STATE = PipelineState(PipelineKey("0c3b2d9e", 3, 0), "team", "gpt-3-0", 64)
BLOCKING_WATTS = 60.0


def measurements_of(registration: RankRegistration, clocks: Iterable[int]) -> tuple[InstructionMeasurement, ...]:
    """Times that fall and energies that rise with the clock; a later stage takes longer."""
    kinds = sorted({(each.kind, each.stage) for each in registration.sequence})
    return tuple(
        InstructionMeasurement(
            kind, stage, clock, 40, seconds, seconds / 100, seconds * (80 + 220 * (clock / 1410) ** 3), 0.1
        )
        for kind, stage in kinds
        for clock in clocks
        for seconds in [(0.1 + 0.02 * stage) * (2.0 if kind == "backward" else 1.0) * (1410 / clock) ** 0.7]
    )


@dataclass
class SimulatedRank:
    """A training process: registers, reports and follows directives as the client does.

    Attributes:
        sequence: Number of its newest report.
        directive: The newest directive that it has received.
        running: The directive under which it runs.
        iteration_seconds: Time of each of its iterations.
        measured: The clocks that it has measured.
        mismatch: What it reports of its instructions.
        free_seconds: Time of an iteration at free clocks between those under a plan.
        free_joules: The same at free clocks between those under a plan.
        iterations_per_second: How many iterations it completes; at least one between two reports.
        compares: Whether its client runs iterations at free clocks under a plan; an earlier version does not.
    """

    registration: RankRegistration
    iterations: int = 0
    sequence: int = 0
    directive: Directive = field(default_factory=Directive)
    running: Directive = field(default_factory=Directive)
    iteration_seconds: float = 1.0
    measured: tuple[int, ...] = ()
    mismatch: str = ""
    free_seconds: float = 1.0
    iteration_joules: float = 100.0
    free_joules: float = 110.0
    iterations_per_second: float = 1.0
    compares: bool = True
    started: dict[int, int] = field(default_factory=dict)

    def receive(self, answer: Directive) -> None:
        """Keep the newest directive; a late answer changes nothing."""
        if answer.known and answer.number >= self.directive.number:
            self.directive = answer

    def train(self, iterations: int) -> None:
        """Complete iterations, and change to a directive at its first one or, if that has passed, at the next."""
        for _ in range(iterations):
            first = self.directive.first_iteration
            if self.directive.mode == FREE or (first is not None and self.iterations >= first):
                self.running = self.directive
            self.started.setdefault(self.running.number, self.iterations)
            if self.running.mode == PROFILE and len(self.measured) < len(self.running.clocks_megahertz):
                self.measured = self.running.clocks_megahertz[: len(self.measured) + 1]
            self.iterations += 1

    def report(self) -> RankReport:
        """The next cumulative report."""
        self.sequence += 1
        profiled = self.running.mode == PROFILE and self.measured == self.running.clocks_megahertz
        under = self.iterations - self.started.get(self.running.number, 0)
        return RankReport(
            process=self.registration.process,
            sequence=self.sequence,
            directive=self.directive.number,
            iterations=self.iterations,
            applied_directive=self.running.number,
            measured_iterations=under,
            iteration_seconds=self.iteration_seconds if under else None,
            iteration_joules=self.iteration_joules if under else None,
            iteration_error_joules=1.0 if under else None,
            blocking_watts=BLOCKING_WATTS if self.measured else None,
            measurements=measurements_of(self.registration, self.measured),
            profiled=profiled,
            mismatch=self.mismatch,
            compared=self._compared(under),
        )

    def _compared(self, under: int) -> tuple[ComparedCycles, ...]:
        """The complete cycles, which differ by up to 1 % at free clocks, on all ranks alike."""
        free = self.running.free
        if free is None or not self.compares or self.mismatch:
            return ()
        cycles = [
            ComparedCycles(
                number,
                1,
                1,
                self.iteration_seconds,
                self.free_seconds * factor,
                self.iteration_joules,
                self.free_joules * factor,
            )
            for number in range(free.part(under).cycle)
            for factor in [1 + random.Random(number).uniform(-0.01, 0.01)]
        ]
        width = 1
        while len(cycles) > MAX_GROUPS * width:
            width *= 2
        return tuple(joined(cycles, width).values())


class SimulatedOperator:
    """Merges messages into a state as the plan service does, and checks after each what must always hold."""

    def __init__(self, state: PipelineState = NEW_STATE) -> None:
        self.state = state
        self.now = START

    def register(self, rank: SimulatedRank) -> Directive:
        """Receive a registration."""
        registrar = Registrar(self.state, self.now)
        registrar.merge(rank.registration)
        self._decide(registrar.state)
        return directive_for(self.state, rank.registration.rank, rank.registration.process, self.now)

    def receive(self, rank: SimulatedRank, report: RankReport) -> Directive:
        self._decide(with_report(self.state, rank.registration.rank, report, self.now))
        return directive_for(self.state, rank.registration.rank, report.process, self.now)

    def plan(self) -> None:
        """Run the planner if it is needed."""
        if needs_plan(self.state, self.now):
            self._decide(replace(self.state, frontier=plan_frontier(planning_request(self.state))))

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)

    def _decide(self, state: PipelineState) -> None:
        before = self.state.directive
        self.state = decided(state, self.now)
        after = self.state.directive
        assert after.number >= before.number
        if after.mode != FREE and after.first_iteration is not None:
            waiting = [rank for rank, each in self.state.ranks.items() if each.acknowledged < after.number]
            assert not waiting, f"directive {after.number} is in force before ranks {waiting} have acknowledged it"


def ranks_of(count: int, *, run: int = 0, **shape: int) -> list[SimulatedRank]:
    """The ranks of a job whose processes were started for the `run`-th time."""
    return [
        SimulatedRank(rank_registration(rank, process=f"{run:016x}{rank:016x}", **shape))  # type: ignore[arg-type]
        for rank in range(count)
    ]


def exchange(operator: SimulatedOperator, ranks: Iterable[SimulatedRank]) -> None:
    """Each rank trains until its next report and sends it; one that is not known registers."""
    ranks = list(ranks)
    seconds = min(rank.directive.report_seconds for rank in ranks)
    for rank in ranks:
        rank.train(max(round(seconds * rank.iterations_per_second), 1))
        answer = operator.receive(rank, rank.report())
        rank.receive(answer if answer.known else operator.register(rank))
    operator.plan()
    operator.pass_time(seconds)


def run_cycles(operator: SimulatedOperator, ranks: list[SimulatedRank], cycles: int) -> None:
    """Exchange messages until each rank has completed so many cycles under the plan that it runs."""
    number = operator.state.directive.number
    free = operator.state.directive.free
    assert free is not None
    while operator.state.directive.number == number and any(
        free.part(rank.iterations - rank.started[number]).cycle < cycles for rank in ranks
    ):
        exchange(operator, ranks)
    exchange(operator, ranks)


def run_until_planned(operator: SimulatedOperator, ranks: list[SimulatedRank], *, rounds: int = 40) -> None:
    """Exchange messages until all ranks run the directive that is issued."""
    for _ in range(rounds):
        exchange(operator, ranks)
        number = operator.state.directive.number
        if operator.state.directive.mode == PLAN and all(rank.running.number == number for rank in ranks):
            return
