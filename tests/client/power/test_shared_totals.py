"""Ranks measure power limits in step: the same limit in the same window, and one choice over all GPUs."""

import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import nvml_simulator
from support.key_values import KeyValues
from wattloop.gpus.agent_process import running_agent
from wattloop.power.shared_totals import RANK_TIMEOUT_SECONDS, RankReading, SharedReading, TotalsExchange, summed
from wattloop.power.windows import Totals
from wattloop.run.held_gpus import ProcessGpus
from wattloop.run.limit_choice import LimitChoice
from wattloop.run.report_channel import ReportChannel
from wattloop.run.verdicts import RankVerdicts
from wattloop.wire.environment import RunEnvironment
from wattloop.wire.torch_group import TorchGroup
from wattloop.wire.training_messages import LimitMeasurement

RANKS = 2
WORK_OF_A_SECOND = 312.0  # teraflop of an A100 in a second at its highest clock
LIMITS = (300.0, 200.0)


@pytest.fixture(scope="module")
def machine() -> Iterator[tuple[nvml_simulator.Machine, Path]]:
    with tempfile.TemporaryDirectory(prefix="wattloop-", dir="/tmp") as name:
        folder = Path(name)
        state = nvml_simulator.create(folder / "gpus", model="A100", count=RANKS, clock="virtual", permission="anyone")
        environment = {"PATH": "/usr/bin:/bin", **nvml_simulator.environment(state)}
        socket = folder / "agent.sock"
        with (
            nvml_simulator.Machine(state) as gpus,
            running_agent(socket, folder / "state", environment=environment, log=folder / "agent.log"),
        ):
            yield gpus, socket


@pytest.mark.parametrize("samples_of_rank_1", [(64.0,), (40.0, 96.0, 8.0, 61.0)])
def test_ranks_hold_the_same_limit_in_each_step_and_choose_over_all_gpus(
    machine: tuple[nvml_simulator.Machine, Path], samples_of_rank_1: tuple[float, ...]
) -> None:
    """With uneven batches, each rank divided by samples of its own, and repeated other limits than the other one."""
    gpus, socket = machine
    store = KeyValues()
    held = [ProcessGpus(str(socket), select=lambda offered, rank=rank: offered[rank : rank + 1]) for rank in (0, 1)]
    chosen_from: list[tuple[LimitMeasurement, ...]] = []
    steps = [0, 0]

    class Choice(LimitChoice):
        def best_limit(self, measurements: tuple[LimitMeasurement, ...]) -> float:
            chosen_from.append(measurements)
            return 250.0

    def choice_of(rank: int) -> LimitChoice:
        verdicts = RankVerdicts(ReportChannel(""), rank, RANKS, group=lambda: TorchGroup(rank, RANKS, store))
        verdicts.name = "run"
        return Choice(RunEnvironment(power_selector="Energy", rank=rank), held[rank], verdicts)

    ranks = [choice_of(rank) for rank in range(RANKS)]

    def step(rank: int) -> None:
        # Rank 1 has more work, so it is the slower one.
        gpus.occupy(rank, work=WORK_OF_A_SECOND * (1.0 + 0.1 * rank), intensity=0.9)
        steps[rank] += 1
        samples = samples_of_rank_1[steps[rank] % len(samples_of_rank_1)] if rank else 64.0
        ranks[rank].step_done(samples)

    with ThreadPoolExecutor(RANKS) as threads:
        for gpus_of_rank, rank in zip(held, ranks, strict=True):
            gpus_of_rank.begin()
            rank.begin()
        while len(chosen_from) < RANKS:
            list(threads.map(step, range(RANKS)))
            first, second = (gpu.power_limit_watts for gpu in gpus.describe().gpus)
            assert first == second
    assert (first, chosen_from[0]) == (250.0, chosen_from[1])
    measured = ranks[0].measurements(64.0)
    limits = [each.power_limit_watts for each in measured]
    assert limits == sorted(limits, reverse=True)
    assert len(limits) > 2
    # What rank 0 reports is that of both GPUs; the other rank reports none of it again.
    assert [(each.measured_gpus, each.ranks) for each in ranks] == [(2, 2)] * RANKS
    assert ranks[1].measurements(64.0) == ()
    ratios = [each.energy_joules / each.time_seconds / each.power_limit_watts for each in measured]
    # One GPU alone would use the limit at most; at the lowest one a GPU needs more.
    assert all(1.5 < ratio < 2.5 for ratio in ratios)
    for gpus_of_rank in held:
        gpus_of_rank.end()


READING = RankReading(100.0, 5.0, 1, LIMITS, interrupted=False)


@pytest.mark.parametrize(
    ("readings", "shared"),
    [
        ([READING], SharedReading(100.0, 5.0, 1, interrupted=False)),
        (
            [READING, RankReading(50.0, 6.0, 3, LIMITS, interrupted=True)],
            SharedReading(150.0, 6.0, 4, interrupted=True),
        ),
        ([READING, RankReading(50.0, 6.0, 1, LIMITS[:1], interrupted=False)], None),
    ],
)
def test_readings_of_ranks_are_added_up(readings: list[RankReading], shared: SharedReading | None) -> None:
    assert summed(readings) == shared


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"limits": LIMITS[:1]}, "one has other limits"),
        ({"moment": "the end of an epoch"}, "a step of rank 0, the end of an epoch of rank 1"),
        ({"uuids": ("GPU-1", "GPU-0")}, "several of them measure GPU-0; start them with torchrun"),
        ({"problem": "the agent offers no GPU"}, "rank 1 cannot: the agent offers no GPU"),
    ],
)
def test_rank_0_says_why_ranks_cannot_measure_together(
    other: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = KeyValues()
    ranks = [TotalsExchange(TorchGroup(rank, 2, store), "run") for rank in (0, 1)]
    usual: dict[str, Any] = {"limits": LIMITS, "moment": "a step", "interrupted": False}
    with ThreadPoolExecutor(2) as threads:
        found = [
            threads.submit(rank.exchange, Totals(10.0, 1.0), 1, **{**usual, "uuids": (f"GPU-{place}",), **own})
            for place, (rank, own) in enumerate(zip(ranks, ({}, other), strict=True))
        ]
    assert [each.result() for each in found] == [None, None]
    assert why in caplog.text


def test_a_missing_rank_ends_the_measurement_of_all_after_a_bounded_time(caplog: pytest.LogCaptureFixture) -> None:
    store, now = KeyValues(), [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    ranks = [TotalsExchange(TorchGroup(rank, 3, store, lambda: now[0], sleep), "run") for rank in (0, 1)]
    assert ranks[0].exchange(Totals(10.0, 1.0), 1, LIMITS, interrupted=False) is None
    assert RANK_TIMEOUT_SECONDS <= now[0] < RANK_TIMEOUT_SECONDS + 1
    assert json.loads(store.values["run/0/all"]) is None
    assert ranks[1].exchange(Totals(10.0, 1.0), 1, LIMITS, interrupted=False) is None
    # Both other ranks have published nothing when rank 0 looks.
    assert "one is missing: rank 1 has not come to this place within 60 s" in caplog.text
