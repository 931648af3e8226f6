"""However a job registers, it has a bounded number of profiles, and an attempt that runs keeps its own."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import func, select

from support.pipelines.registrations import rank_registration
from wattloop.pipeline.plan_messages import RankReport
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineFrontier, PipelineKey, PipelineState
from wattloop_operator.reconcile.pipeline.profile import profile_digest
from wattloop_operator.reconcile.pipeline.rank_directives import decided
from wattloop_operator.reconcile.pipeline.registrations import Registrar
from wattloop_operator.reconcile.pipeline.reports import with_report
from wattloop_operator.store import Store
from wattloop_operator.store.pipeline_profiles import MAX_PROFILES_OF_JOB
from wattloop_operator.store.pipeline_store import StoredPipeline
from wattloop_operator.store.tables import PIPELINE_PARTS, PIPELINE_PROFILES

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MODELS = [f"model-{number:02}" for number in range(20)]


def new(recurrence: int, job: str = "0c3b2d9e") -> PipelineState:
    return PipelineState(PipelineKey(job, recurrence, 0), "team", f"bert-{recurrence}-0")


def register(
    store: Store,
    recurrence: int,
    *models: str,
    known: StoredPipeline | None = None,
    clocks: tuple[int, ...] = (900, 1410),
    now: datetime = NOW,
    job: str = "0c3b2d9e",
) -> StoredPipeline:
    """Register rank 0 with these models, one after another."""
    for model in models:
        registration = replace(rank_registration(0, clocks=clocks), model=model)

        def merge(state: PipelineState, registration: object = registration) -> PipelineState:
            registrar = Registrar(state, now)
            registrar.merge(registration)  # type: ignore[arg-type]
            return registrar.state

        known = store.pipelines.change(new(recurrence, job), known, merge, lambda state: state, now)
    assert known is not None
    return known


def stored_models(store: Store) -> list[str]:
    with store._database.reading("list the profiles") as on:
        return list(on.execute(select(PIPELINE_PROFILES.c.model).order_by(PIPELINE_PROFILES.c.id)).scalars())


def test_of_a_jobs_profiles_the_one_that_was_unused_longest_gives_way(store: Store) -> None:
    for recurrence, model in enumerate(MODELS[:MAX_PROFILES_OF_JOB]):
        register(store, recurrence, model, now=NOW + recurrence * 2 * HOUR)
    later = NOW + 100 * HOUR
    register(store, 100, MODELS[0], now=later)
    register(store, 101, MODELS[10], now=later + HOUR)
    assert stored_models(store) == [MODELS[0], *MODELS[2:MAX_PROFILES_OF_JOB], MODELS[10]]


def test_the_profile_of_a_running_attempt_stays_whatever_other_attempts_of_the_job_register(store: Store) -> None:
    victim = register(store, 0, "victim")
    for recurrence in range(1, 6):
        hostile = MODELS[4 * (recurrence - 1) : 4 * recurrence]
        register(store, recurrence, *hostile[:4], now=NOW + HOUR / 2)
    assert "victim" in stored_models(store)
    assert len(stored_models(store)) == MAX_PROFILES_OF_JOB
    report = RankReport(rank_registration(0).process, 1, 0, 9)
    again = store.pipelines.change(
        new(0), victim, lambda state: with_report(state, 0, report, NOW), lambda state: state, NOW
    )
    assert again.profile_id == victim.profile_id


def test_other_jobs_keep_their_profiles(store: Store) -> None:
    register(store, 0, "other", job="another-job")
    for recurrence, model in enumerate(MODELS):
        register(store, recurrence + 1, model, now=NOW + recurrence * 2 * HOUR)
    with store._database.reading("count") as on:
        query = select(PIPELINE_PROFILES.c.job_uid, func.count()).group_by(PIPELINE_PROFILES.c.job_uid)
        assert dict(on.execute(query).all()) == {"0c3b2d9e": MAX_PROFILES_OF_JOB, "another-job": 1}


def test_an_attempt_whose_profile_was_deleted_measures_again(store: Store) -> None:
    known = register(store, 0, "idle")
    frontier = PipelineFrontier(profile_digest(known.state), problem="none")
    known = store.pipelines.change(
        new(0), known, lambda state: replace(state, frontier=frontier), lambda state: state, NOW
    )
    later = NOW + 2 * HOUR
    for recurrence, model in enumerate(MODELS[:MAX_PROFILES_OF_JOB]):
        register(store, recurrence + 1, model, now=later)
    assert "idle" not in stored_models(store)
    report = RankReport(rank_registration(0).process, 1, 0, 9)
    for replica in (known, None):
        again = store.pipelines.change(
            new(0),
            replica,
            lambda state: with_report(state, 0, report, later),
            lambda state: decided(state, later),
            later,
        )
        assert again.state.profile is not None
        assert again.state.frontier is None
        assert "idle" in stored_models(store)
        assert store.pipelines.read(new(0).key) == again.state


def test_profiles_that_no_attempt_used_for_half_a_year_are_deleted(store: Store) -> None:
    register(store, 0, "old")
    store.pipelines.delete_old(NOW + timedelta(days=180))
    assert stored_models(store) == ["old"]
    register(store, 1, "running", now=NOW + timedelta(days=180))
    store.pipelines.delete_old(NOW + timedelta(days=181))
    assert stored_models(store) == ["running"]


def test_attempts_that_register_at_the_same_time_leave_the_bounded_number(store: Store) -> None:
    for recurrence, model in enumerate(MODELS[:MAX_PROFILES_OF_JOB]):
        register(store, recurrence, model, now=NOW - timedelta(days=1))
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: register(store, number, MODELS[number]), range(10, 14)))
    found = stored_models(store)
    assert len(found) == MAX_PROFILES_OF_JOB
    assert set(MODELS[10:14]) <= set(found)


def test_instructions_and_clocks_that_no_rank_has_any_more_are_deleted(store: Store) -> None:
    known, other = register(store, 0, "gpt"), None
    for clock in range(1000, 1010):
        known = register(store, 0, "gpt", known=known, clocks=(900, clock))
        other = register(store, 0, "gpt", known=other, clocks=(900, clock))
    with store._database.reading("count the parts") as on:
        assert on.execute(select(func.count()).select_from(PIPELINE_PARTS)).scalar_one() == 1
    assert store.pipelines.read(new(0).key) == known.state
    # A replica that knew the part that another one has deleted.
    known = register(store, 0, "gpt", known=known, clocks=(900, 1000))
    other = register(store, 0, "gpt", known=other, clocks=(900, 1009))
    assert store.pipelines.read(new(0).key) == other.state
