"""A full profile costs a message little: what follows from the measurements is computed when they change."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from support.pipelines.registrations import rank_registration
from support.pipelines.simulated_ranks import NEW_STATE, SimulatedOperator, measurements_of, ranks_of
from support.pipelines.simulated_ranks import run_until_planned as run
from wattloop.pipeline.plan_messages import PLAN, InstructionMeasurement, RankReport
from wattloop_operator.reconcile.pipeline.profile import profile_digest
from wattloop_operator.reconcile.pipeline.rank_directives import decided, needs_plan
from wattloop_operator.reconcile.pipeline.reports import with_report


class Counted(tuple[InstructionMeasurement, ...]):
    """Measurements that count how often they are gone through."""

    times = 0

    def __iter__(self) -> Iterator[InstructionMeasurement]:
        Counted.times += 1
        return super().__iter__()


def test_a_report_without_measurements_goes_through_none() -> None:
    operator, ranks = SimulatedOperator(NEW_STATE), ranks_of(2)
    run(operator, ranks)
    state = operator.state
    processes = {
        pair: replace(each, measurements=Counted(each.measurements)) for pair, each in state.profile.processes.items()
    }
    state = decided(replace(state, profile=replace(state.profile, processes=processes)), operator.now)
    assert state.directive.mode == PLAN
    digest, before = profile_digest(state), Counted.times
    for number in range(1, 4):
        now = operator.now + timedelta(seconds=number)
        report = replace(ranks[0].report(), measurements=(), blocking_watts=None, profiled=False)
        state = decided(with_report(state, 0, report, now), now)
        assert not needs_plan(state, now)
    assert (Counted.times, profile_digest(state)) == (before, digest)


def test_a_report_with_measurements_goes_through_those_of_its_process_alone() -> None:
    operator, ranks = SimulatedOperator(NEW_STATE), ranks_of(2)
    run(operator, ranks)
    state, registration = operator.state, rank_registration(0)
    processes = {
        pair: replace(each, measurements=Counted(each.measurements)) for pair, each in state.profile.processes.items()
    }
    state = decided(replace(state, profile=replace(state.profile, processes=processes)), operator.now)
    before = Counted.times
    more = tuple(replace(each, repetitions=90) for each in measurements_of(registration, registration.clocks_megahertz))
    report: RankReport = replace(ranks[0].report(), measurements=more)
    now = operator.now + timedelta(seconds=1)
    after = decided(with_report(state, 0, report, now), now)
    assert after.profile.processes[0, report.process].measurements == more
    assert Counted.times == before
