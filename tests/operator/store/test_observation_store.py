"""Observations on both databases: append-only, idempotent, read unchanged."""

import logging
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from wattloop.errors import InputError
from wattloop_operator.api.curve_field import MAX_CURVE_POINTS
from wattloop_operator.domain.pipeline_result import PipelineResult
from wattloop_operator.store import RESULTS, JobObservations, ObservationRecord, Store
from wattloop_planner.metric_curve import MetricCurve

Make = Callable[..., ObservationRecord]
# All examples use one database, so each has its own job uid.
on_a_database = settings(
    max_examples=settings().max_examples // 4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def test_a_second_record_that_differs_is_ignored_with_a_warning(
    store: Store, observation: Make, caplog: pytest.LogCaptureFixture
) -> None:
    store.observations.record(observation(epochs=2.0))
    with caplog.at_level(logging.WARNING):
        assert store.observations.record(observation(epochs=9.0)) is False
    assert store.observations.of_job(observation().job_uid) == (observation(epochs=2.0),)
    (message,) = caplog.messages
    assert "team/digits-0" in message
    assert "epochs (stored 2.0, ignored 9.0)" in message


attempts = st.tuples(st.integers(0, 3), st.integers(0, 2))


@on_a_database
@given(arrivals=st.lists(st.tuples(attempts, st.floats(0, 1e12)), max_size=12))
def test_the_first_record_of_each_attempt_is_stored_in_any_order(
    store: Store, observation: Make, arrivals: list[tuple[tuple[int, int], float]]
) -> None:
    job_uid = uuid.uuid4().hex
    first: dict[tuple[int, int], ObservationRecord] = {}
    for (recurrence, attempt), energy in arrivals:
        record = observation(job_uid=job_uid, recurrence=recurrence, attempt=attempt, energy_joules=energy)
        assert store.observations.record(record) is ((recurrence, attempt) not in first)
        first.setdefault((recurrence, attempt), record)
    assert store.observations.of_job(job_uid) == tuple(first[key] for key in sorted(first))


numbers = st.floats(0, 9e14)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
times = st.datetimes(
    datetime(1970, 1, 2),  # noqa: DTZ001
    datetime(2100, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=-7, minutes=30))]),
)


@on_a_database
@given(
    changes=st.fixed_dictionaries(
        {
            "recurrence": st.integers(0, 2**63 - 1),
            "batch_size": st.integers(1, 2**63 - 1),
            "power_limit_watts": st.none() | numbers,
            "result": st.sampled_from(sorted(RESULTS)),
            "epochs": numbers,
            "metric": st.none() | st.floats(-9e14, 9e14, allow_subnormal=False),
            "energy_joules": numbers,
            "gpu_product": texts,
            "reason": texts,
            "template_digest": st.none() | st.text("0123456789abcdef", min_size=1),
            "image_digest": st.none() | st.text("0123456789abcdef", min_size=64, max_size=64).map("sha256:{}".format),
            "target_threshold": st.floats(-1e300, 1e300),
            "target_evaluations": st.integers(1, 2**63 - 1),
            "curve": st.dictionaries(
                st.floats(0, 9e14, exclude_min=True, allow_subnormal=False),
                st.floats(-9e14, 9e14),
                max_size=MAX_CURVE_POINTS,
            ).map(lambda points: MetricCurve.from_points(points.items())),
            "pipeline": st.none()
            | st.builds(
                PipelineResult,
                mode=st.sampled_from(["Free", "Plan", "Profile"]),
                plan=st.text("abcdefghijklmnopqrstuvwxyz-.0123456789", max_size=253),
                planned_seconds=st.none() | numbers,
                realised_joules=st.none() | numbers,
                saving_percent=st.none() | st.floats(-1e300, 1e300),
            ),
            "scheduled_at": times,
            "finished_at": times,
        }
    )
)
def test_every_valid_record_is_read_unchanged(store: Store, observation: Make, changes: dict[str, object]) -> None:
    record = observation(job_uid=uuid.uuid4().hex, **changes)
    assert store.observations.record(record) is True
    assert store.observations.of_job(record.job_uid) == (record,)
    # A repeated record is equal, so nothing was rounded.
    assert store.observations.record(record) is False


@pytest.mark.parametrize(
    "value",
    [
        "",
        "0.5",
        "[1, 0.5",
        "[1, 0.5]",
        "[[1, 0.5], [1, 0.6]]",
        "[[1, NaN]]",
        '[["1", 0.5]]',
        '{"1": 0.5}',
        "[" * 100_000,
        str([[each, 0.5] for each in range(1, 100)]),
        str([[each, 0.5] for each in range(1, 1_000)]),
    ],
)
def test_an_invalid_curve_in_the_database_is_an_error_that_names_the_row(
    value: str, store: Store, observation: Make
) -> None:
    store.observations.record(observation())
    with store._database.writing("change a row") as on:
        on.execute(text("UPDATE observations SET curve = :curve"), {"curve": value})
    with pytest.raises(
        InputError, match=r"^observation team/digits-0: column curve: found .{1,210}, expected (pairs|at most 64)"
    ):
        store.observations.of_job(observation().job_uid)


def test_a_curve_of_integers_in_the_database_is_read_as_floats(store: Store, observation: Make) -> None:
    store.observations.record(observation())
    with store._database.writing("change a row") as on:
        on.execute(text("UPDATE observations SET curve = '[[1, 5], [2, 7]]'"))
    assert store.observations.of_job(observation().job_uid) == (observation(curve=MetricCurve((1.0, 2.0), (5.0, 7.0))),)


@pytest.mark.parametrize(
    "value",
    ["", "Plan", "[]", "{}", '{"mode":"Fast"}', '{"mode":["Plan"]}', '{"mode":"Plan","plan":1}', "[" * 100_000]
    + [
        f'{{"mode":"Plan","{name}":{number}}}'
        for name in ("planned_seconds",)
        for number in ('"1"', "NaN", "true", "1e999")
    ],
)
def test_an_invalid_pipeline_in_the_database_is_an_error_that_names_the_row(
    value: str, store: Store, observation: Make
) -> None:
    store.observations.record(observation())
    with store._database.writing("change a row") as on:
        on.execute(text("UPDATE observations SET pipeline = :pipeline"), {"pipeline": value})
    with pytest.raises(
        InputError, match=r"^observation team/digits-0: column pipeline: found .{1,210}, expected an obj"
    ):
        store.observations.of_job(observation().job_uid)


def test_what_a_newer_version_says_of_a_pipeline_is_ignored(store: Store, observation: Make) -> None:
    store.observations.record(observation())
    with store._database.writing("change a row") as on:
        newer = '{"mode":"Plan","planned_seconds":2,"new":{}}'
        on.execute(text("UPDATE observations SET pipeline = :pipeline"), {"pipeline": newer})
    (record,) = store.observations.of_job(observation().job_uid)
    assert record.pipeline == PipelineResult("Plan", planned_seconds=2.0)


def test_of_concurrent_writers_exactly_one_is_first(store: Store, observation: Make) -> None:
    records = [observation(recurrence=index % 5, energy_joules=float(index)) for index in range(40)]
    with ThreadPoolExecutor(8) as threads:
        new = list(threads.map(store.observations.record, records))
    winners = tuple(record for record, is_new in zip(records, new, strict=True) if is_new)
    assert store.observations.of_job(observation().job_uid) == tuple(sorted(winners, key=lambda one: one.recurrence))
    assert [record.recurrence for record in store.observations.of_job(observation().job_uid)] == [0, 1, 2, 3, 4]


def test_jobs_of_one_name_are_distinguished_by_uid(store: Store, observation: Make) -> None:
    old, new = observation(job_uid="a"), observation(job_uid="b", recurrence=4)
    other = observation(job_uid="c", namespace="other")
    for record in (new, other, old):
        store.observations.record(record)
    assert store.observations.of_name("team", "digits") == (old, new)
    assert store.observations.of_job("b") == (new,)
    assert store.observations.jobs() == (
        JobObservations("c", "other", "digits", 1),
        JobObservations("a", "team", "digits", 1),
        JobObservations("b", "team", "digits", 1),
    )


def test_an_unknown_job_has_no_observations(store: Store) -> None:
    assert store.observations.of_job("nobody") == ()
    assert store.observations.of_name("no", "body") == ()
    assert store.observations.jobs() == ()


def test_names_are_ordered_by_code_point_on_both_databases(store: Store, observation: Make) -> None:
    for name in ("b", "B", "a-1", "a1", "é"):
        store.observations.record(observation(job_uid=name, job_name=name))
    assert [job.job_name for job in store.observations.jobs()] == ["B", "a-1", "a1", "b", "é"]


@pytest.mark.parametrize(
    "parameters",
    [
        (),
        (("dropout", "0.1"), ("learning_rate", "1e-3")),
        tuple((f"parameter_{index}", "\U0001f525" * 256) for index in range(8)),
    ],
    ids=["none", "two", "the most"],
)
def test_values_of_parameters_are_read_back(
    store: Store, observation: Callable[..., ObservationRecord], parameters: tuple[tuple[str, str], ...]
) -> None:
    record = observation(parameters=parameters)
    store.observations.record(record)
    assert store.observations.of_job(record.job_uid) == (record,)


@pytest.mark.parametrize(
    "parameters",
    [
        (("b", "1"), ("a", "1")),
        (("a", "1"), ("a", "2")),
        (("a", ""),),
        (("a", "\0"),),
        (("a", "x" * 257),),
        (("a",),),
        tuple((f"parameter_{index}", "1") for index in range(9)),
        [["a", "1"]],
    ],
)
def test_invalid_parameters_are_refused(observation: Callable[..., ObservationRecord], parameters: object) -> None:
    with pytest.raises(InputError, match="column parameters"):
        observation(parameters=parameters)
