"""Reports as they come: late, twice, out of order, from several processes at once."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
from reporting_api import BODY, Api

from wattloop_operator.api.result import Result


def gpu(index: int, joules: float, seconds: float) -> dict[str, Any]:
    return {
        "uuid": f"GPU-{index:02}",
        "start_energy_millijoules": 5000,
        "energy_millijoules": 5000 + round(joules * 1000),
        "start_time_seconds": 100.0,
        "time_seconds": 100.0 + seconds,
    }


def body(sequence: int, **changes: Any) -> dict[str, Any]:
    """The sequence-th report of a process: an epoch, an evaluation and 1000 J more each."""
    return {
        "sequence": sequence,
        "epoch": float(sequence),
        "metric": sequence / 10,
        "evaluations": sequence,
        "gpus": [gpu(0, 1000.0 * sequence, 10.0 * sequence)],
        "gpu_product": "NVIDIA A100",
        "max_power_limit_watts": 400.0,
        **changes,
    }


def test_a_report_is_kept_before_it_is_answered(api: Api) -> None:
    name, token = api.recurrence()
    reply = api.post(name, token, body(2))
    assert (reply.code, reply.body) == (200, {"stop": False, "reason": ""})
    progress = api.progress(name)
    assert progress is not None
    assert (progress.sequence, progress.epoch, progress.metric, progress.evaluations) == (2, 2, Decimal("0.2"), 2)
    assert progress.max_power_limit_watts == 400
    assert [reading.energy_millijoules for reading in progress.gpus] == [2_005_000]
    assert api.woken


def test_every_reading_is_kept_in_the_store(api: Api) -> None:
    name, token = api.recurrence()
    spec = api.read(name).spec
    for sequence in (1, 2, 1):
        api.post(name, token, body(sequence))
    readings = api.store.readings.of_attempt(spec.job_ref.uid, spec.index, spec.attempt)
    assert [(reading.time_seconds, reading.energy_millijoules) for reading in readings] == [
        (100.0, 5000),
        (110.0, 1_005_000),
        (120.0, 2_005_000),
    ]


@pytest.mark.parametrize("order", list(itertools.permutations((1, 2, 3))))
def test_whatever_the_order_the_newest_report_counts(api: Api, order: tuple[int, ...]) -> None:
    name, token = api.recurrence()
    for sequence in (*order, *order):
        assert api.post(name, token, body(sequence)).code == 200
    progress = api.progress(name)
    assert progress is not None
    assert (progress.sequence, progress.epoch, progress.metric, progress.evaluations) == (3, 3, Decimal("0.3"), 3)
    assert [reading.energy_millijoules for reading in progress.gpus] == [3_005_000]


def test_a_repeated_report_writes_nothing(api: Api) -> None:
    name, token = api.recurrence()
    api.post(name, token, body(1))
    before = api.read(name).metadata.resource_version
    api.post(name, token, body(1))
    assert api.read(name).metadata.resource_version == before


def test_a_report_after_the_end_is_told_to_stop_and_changes_nothing(api: Api) -> None:
    name, token = api.recurrence()
    api.post(name, token, body(1))
    api.write_status(name, result=Result.DEADLINE_EXCEEDED, message="still running at activeDeadlineSeconds; " * 100)
    reply = api.post(name, token, body(2))
    assert reply.body["stop"] is True
    assert reply.body["reason"].startswith("the attempt has ended: still running at activeDeadlineSeconds")
    assert len(reply.body["reason"]) <= 2000
    progress = api.progress(name)
    assert progress is not None
    assert progress.sequence == 1


def test_a_run_that_costs_more_than_decided_is_told_to_stop_and_hears_it_again(api: Api) -> None:
    name, token = api.recurrence(stop_cost_joules=Decimal(5000))
    replies = [api.post(name, token, body(sequence)).body["stop"] for sequence in (1, 2, 3, 2, 4)]
    # Half of the energy and half of 400 W times the time: 2500 J a report.
    assert replies == [False, True, True, True, True]


def test_reaching_the_target_counts_however_dear(api: Api) -> None:
    name, token = api.recurrence(stop_cost_joules=Decimal(5000))
    assert api.post(name, token, body(9, metric=0.95)).body["stop"] is False
    progress = api.progress(name)
    assert progress is not None
    assert progress.reached


@pytest.mark.parametrize(("counted", "reached"), [(2, True), (1, False), (None, False)])
def test_evaluations_in_a_row_survive_a_lost_report(api: Api, counted: int | None, reached: bool) -> None:
    name, token = api.recurrence()
    target = api.read(name).spec.target.model_copy(update={"consecutive_evaluations": 2})
    name, token = api.recurrence(target=target)
    api.post(name, token, body(1, reached_in_a_row=0))
    # Report 2, whose metric reached the target too, was lost.
    api.post(name, token, body(3, metric=0.95, reached_in_a_row=counted))
    progress = api.progress(name)
    assert progress is not None
    assert progress.reached is reached


def test_a_process_cannot_claim_more_evaluations_than_there_were(api: Api) -> None:
    name, _ = api.recurrence()
    target = api.read(name).spec.target.model_copy(update={"consecutive_evaluations": 3})
    name, token = api.recurrence(target=target)
    api.post(name, token, body(2, metric=0.95, reached_in_a_row=100))
    progress = api.progress(name)
    assert progress is not None
    assert (progress.consecutive_reached, progress.reached) == (2, False)


def test_processes_that_report_at_once_lose_nothing(api: Api) -> None:
    name, token = api.recurrence()
    ranks, reports = 8, 4

    def report(rank: int) -> list[int]:
        return [
            api.post(
                name,
                token,
                body(sequence, rank=rank, gpus=[gpu(rank, 1000.0 * sequence, 10.0 * sequence)], metric=rank / 10),
            ).code
            for sequence in range(1, reports + 1)
        ]

    with ThreadPoolExecutor(ranks) as threads:
        codes = list(threads.map(report, range(ranks)))
    assert codes == [[200] * reports] * ranks
    progress = api.progress(name)
    assert progress is not None
    assert [reading.uuid for reading in progress.gpus] == [f"GPU-{rank:02}" for rank in range(ranks)]
    assert {reading.energy_millijoules for reading in progress.gpus} == {5000 + reports * 1_000_000}
    # The metric is rank 0's, the maximum power that of all GPUs.
    assert (progress.metric, progress.max_power_limit_watts) == (0, 400 * ranks)


def test_the_decision_can_be_looked_up(api: Api) -> None:
    name, token = api.recurrence(power_limit_watts=300)
    reply = api.ask(api.path(name, last="decision"), token)
    assert reply.code == 200
    spec = api.read(name).spec
    assert reply.body == {
        "batch_size": spec.batch_size,
        "power_limit_watts": 300,
        "profile_power_limits": spec.profile_power_limits,
        "max_epochs": 50,
        "reason": spec.decision.reason,
    }


def test_a_report_of_the_bare_minimum_is_enough(api: Api) -> None:
    name, token = api.recurrence()
    assert api.post(name, token, BODY).code == 200
