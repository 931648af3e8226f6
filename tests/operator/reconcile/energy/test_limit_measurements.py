"""The power profile of several ranks: added up over the ranks, and learned only with all of them."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.backends.model_backend import job
from wattloop.power.selectors import Cost, MeasuredLimit
from wattloop.wire.training_messages import GpuEnergy, LimitMeasurement, Report
from wattloop_operator.api.meta import ConditionStatus
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.attempt_conditions import profile_conditions
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.energy.epoch_usage import epoch_usage
from wattloop_operator.reconcile.energy.limit_measurements import complete_points, unmeasured_ranks_text
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.reconcile.learning.job_observations import power_profile_of

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DECISION = decide(Snapshot(job()), Attempt(0, 0, "slot", NOW))
RANKS = 8
# Energy and time of an epoch of one rank at each limit.
EPOCHS = {400.0: (2700.0, 10.0), 300.0: (1900.0, 11.5)}


def report(rank: int, sequence: int = 1, *, ranks: int = RANKS, epochs: float = 0.5, slower: float = 1.0) -> Report:
    """A report of a rank with one GPU that measured both limits over some part of an epoch."""
    gpu = GpuEnergy(f"GPU-{rank:02}", 0, 5_000_000 * sequence, 0.0, 20.0 * sequence)
    profile = (
        LimitMeasurement(watts, energy * epochs, time * epochs * slower, epochs)
        for watts, (energy, time) in EPOCHS.items()
    )
    return Report(
        process="p",
        sequence=sequence,
        epoch=float(sequence),
        metric=0.1,
        evaluations=sequence,
        gpus=(gpu,),
        gpu_product="NVIDIA A100",
        max_power_limit_watts=400.0,
        power_limit_watts=300.0,
        profile=tuple(profile),
        rank=rank,
        ranks=ranks,
    )


def after(*reports: Report) -> TrainingAttempt:
    recurrence = DECISION
    for each in reports:
        recurrence = recurrence.model_copy(update={"progress": progress_after(recurrence, each)})
    return recurrence


def points(recurrence: TrainingAttempt) -> dict[float, tuple[float, float]]:
    measured = power_profile_of(recurrence)
    return {
        point.power_limit_watts: (point.energy_joules / point.epochs, point.time_seconds / point.epochs)
        for point in (measured.measurements if measured is not None else ())
    }


def test_the_energy_of_an_epoch_is_that_of_all_ranks_and_its_time_that_of_the_slowest() -> None:
    recurrence = after(
        *(report(rank, slower=1.2 if rank == 5 else 1.0, epochs=0.2 + rank / 8) for rank in range(RANKS))
    )
    expected = {watts: (RANKS * energy, 1.2 * time) for watts, (energy, time) in EPOCHS.items()}
    assert points(recurrence) == {watts: pytest.approx(pair) for watts, pair in expected.items()}
    found = epoch_usage(recurrence.spec, recurrence.progress, None, None)
    assert (found.energy_joules, found.time_seconds) == pytest.approx(expected[300.0])


def test_the_cost_of_all_ranks_selects_the_limit_of_one_rank_alone() -> None:
    # With the energy of one rank and the GPUs of all, time has eight times its weight.
    def selected(energies: int) -> float:
        return (
            Cost(0.5)
            .select([MeasuredLimit(watts, energies * energy, time, RANKS) for watts, (energy, time) in EPOCHS.items()])
            .power_limit_watts
        )

    assert (selected(1), selected(RANKS)) == (400.0, 300.0)
    measured = points(after(*map(report, range(RANKS))))
    whole = [MeasuredLimit(watts, energy, time, RANKS) for watts, (energy, time) in measured.items()]
    assert Cost(0.5).select(whole).power_limit_watts == 300.0


@settings(deadline=None)
@given(st.data())
def test_reports_may_be_late_repeated_reordered_or_lost(data: st.DataObject) -> None:
    sent = [report(rank, sequence, epochs=0.25 + rank / 16) for rank in range(4) for sequence in (1, 2)]
    sent = [replace(each, ranks=4) for each in sent]
    arrived = data.draw(st.permutations([*sent, *data.draw(st.lists(st.sampled_from(sent)))]))
    lost = data.draw(st.sets(st.sampled_from(range(len(sent))), max_size=3))
    # Of each rank, one report arrives.
    kept = [each for each in arrived if sent.index(each) not in lost or sent[sent.index(each) ^ 1] not in arrived]
    ranks = {each.rank for each in kept}
    found = after(*kept)
    in_order = after(*(report(rank, 2, ranks=4, epochs=0.25 + rank / 16) for rank in sorted(ranks)))
    assert found.progress.profile == in_order.progress.profile
    assert bool(points(found)) == (len(ranks) == 4)


@pytest.mark.parametrize(
    ("silent", "text"),
    [({3}, "rank 3 of 8"), ({1, 3}, "rank 1 and rank 3 of 8"), ({0, 1, 7}, "rank 0, rank 1 and rank 7 of 8")],
)
def test_a_rank_that_never_reports_leaves_the_profile_incomplete_and_is_named(silent: set[int], text: str) -> None:
    recurrence = after(*(report(rank) for rank in range(RANKS) if rank not in silent))
    progress = recurrence.progress
    assert (complete_points(progress), power_profile_of(recurrence)) == ((), None)
    assert unmeasured_ranks_text(progress) == text
    (found,) = profile_conditions(recurrence, NOW)
    assert (found.status, found.reason) == (ConditionStatus.FALSE, "RanksMissing")
    assert found.message.startswith(text)


def test_a_rank_without_its_number_of_ranks_counts_by_its_own_number() -> None:
    assert unmeasured_ranks_text(after(*(report(rank, ranks=1) for rank in (2, 0))).progress) == "rank 1 of 3"
    assert power_profile_of(after(*(report(rank, ranks=1) for rank in (2, 0, 1)))) is not None


def test_a_complete_profile_has_no_missing_rank() -> None:
    (found,) = profile_conditions(after(*map(report, range(RANKS))), NOW)
    assert found.status is ConditionStatus.TRUE


def test_the_profile_of_one_rank_is_the_one_that_it_reported_last() -> None:
    first, second = report(0, 1, ranks=1), report(0, 2, ranks=1, epochs=0.75)
    recurrence = after(first, second, first)
    found = [(float(each.energy_joules), float(each.epochs)) for each in recurrence.progress.profile]
    assert found == [(each.energy_joules, each.epochs) for each in second.profile]
    assert not list(profile_conditions(recurrence, NOW))
    assert points(recurrence).keys() == EPOCHS.keys()


def test_a_rank_beyond_the_bound_is_never_part_of_a_profile() -> None:
    progress = after(report(0, ranks=5000), report(4000, ranks=5000)).progress
    assert (progress.ranks, complete_points(progress)) == (5000, ())
    assert unmeasured_ranks_text(progress).startswith("all ranks from 1024 of 5000")


def test_a_profile_that_rank_0_measured_with_all_others_is_complete() -> None:
    recurrence = after(replace(report(0), profile_ranks=RANKS), *(replace(report(rank), profile=()) for rank in (1, 2)))
    expected = {watts: pytest.approx(pair) for watts, pair in EPOCHS.items()}
    assert points(recurrence) == expected
    # One that is sent again by a process alone adds nothing.
    assert points(after(replace(report(0), profile_ranks=RANKS), *map(report, range(RANKS)))) == expected
