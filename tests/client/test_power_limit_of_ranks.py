"""The ranks of a process group choose one power limit together: real agent, simulated GPUs, ranks as threads."""

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from support.agents.simulated_node import SimulatedNode, simulated_node
from support.key_values import KeyValues
from wattloop import PowerLimitOptimizer
from wattloop.power.profile_result import read_result
from wattloop.power.selectors import Energy, Selector, Time
from wattloop.power.sequential_design import Requirements
from wattloop.wire.torch_group import TorchGroup

RANKS = 2
WORK_OF_A_SECOND = 312.0  # teraflop of an A100 in a second at its highest clock
LIMITS = (400.0, 250.0, 100.0)
DEFAULT_WATTS = 400.0
STEPS = 4


@dataclass(frozen=True)
class Load:
    """What a rank does in a step: work in seconds at the highest clock, its intensity, and samples by turns."""

    seconds: float = 1.0
    intensity: float = 0.9
    samples: tuple[float, float] = (1.0, 1.0)


@dataclass
class Ranks:
    """The ranks of a data-parallel training, which wait for each other in each step."""

    node: SimulatedNode
    loads: Sequence[Load] = (Load(), Load())
    joules: dict[float, list[float]] = field(default_factory=lambda: defaultdict(list))
    seconds: dict[float, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def limits(self) -> list[float]:
        return [gpu.power_limit_watts for gpu in self.node.gpus.describe().gpus]

    def optimizers(
        self, selectors: Sequence[Selector] = (Energy(), Energy()), **options: Sequence[Any]
    ) -> list[PowerLimitOptimizer]:
        """One optimizer a rank; each option has a value a rank."""
        store = KeyValues()
        each = [{key: values[rank] for key, values in options.items()} for rank in range(RANKS)]
        return [
            PowerLimitOptimizer(
                selector=selectors[rank],
                group=lambda rank=rank: TorchGroup(rank, RANKS, store),
                **{
                    "run_or_agent": self.node.socket,
                    "limits_watts": LIMITS,
                    "environment": environment_of(rank),
                    "requirements": Requirements(budget_seconds=60.0),
                    **each[rank],
                },
            )
            for rank in range(RANKS)
        ]

    def train(self, optimizers: Sequence[PowerLimitOptimizer], epochs: int, metrics: Sequence[float | None]) -> None:
        with ThreadPoolExecutor(RANKS) as threads:

            def together(call: Callable[[int], None]) -> None:
                list(threads.map(call, range(RANKS)))

            for _ in range(epochs):
                together(lambda rank: optimizers[rank].on_epoch_begin())
                for step in range(STEPS):
                    self._work()
                    turn = step % 2
                    together(lambda rank: optimizers[rank].on_step_end(self.loads[rank].samples[turn]))  # noqa: B023
                    assert len(set(self.limits)) == 1
                together(lambda rank: optimizers[rank].on_epoch_end(metric=metrics[rank]))

    def _work(self) -> None:
        limit = self.limits[0]
        energy = self._joules()
        begin = self.node.gpus.clock_seconds(0)
        for rank, load in enumerate(self.loads):
            self.node.gpus.occupy([rank], work=load.seconds * WORK_OF_A_SECOND, intensity=load.intensity)
        self.node.gpus.idle(list(range(RANKS)), 0.0)
        self.joules[limit].append(self._joules() - energy)
        self.seconds[limit].append(self.node.gpus.clock_seconds(0) - begin)

    def _joules(self) -> float:
        return sum(gpu.energy_microjoules for gpu in self.node.gpus.describe().gpus) / 1e6


def environment_of(rank: int) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(RANKS)}


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@pytest.fixture(scope="module")
def node() -> Iterator[SimulatedNode]:
    with simulated_node(RANKS) as simulated:
        yield simulated


seconds = st.tuples(*[st.floats(0.5, 1.5)] * RANKS)
intensities = st.tuples(*[st.floats(0.3, 1.0)] * RANKS)


# Shrinking would repeat whole trainings.
@settings(max_examples=8, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(seconds=seconds, intensities=intensities, few=st.integers(1, 3), many=st.integers(1, 3))
def test_all_ranks_end_at_the_same_limit_whatever_their_gpus_measure(
    node: SimulatedNode, seconds: tuple[float, ...], intensities: tuple[float, ...], few: int, many: int
) -> None:
    # The batches of a step differ between the ranks; all have as many samples together in each step.
    samples = ((few, many), (many, few))
    ranks = Ranks(node, [Load(*each) for each in zip(seconds, intensities, samples, strict=True)])
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"profile-of-{rank}.json") for rank in range(RANKS)]
        optimizers = ranks.optimizers(profile_file=files)
        ranks.train(optimizers, 1, (None, None))
        while any(optimizer.measuring for optimizer in optimizers):
            ranks.train(optimizers, 1, (None, None))
        results = [optimizer.result for optimizer in optimizers]
        assert results == [results[0]] * RANKS
        assert ranks.limits == [results[0].power_limit_watts] * RANKS
        # Rank 0 alone writes.
        assert [file.exists() for file in files] == [True, False]
        assert read_result(files[0]) == results[0]
    # Energy is the sum of both GPUs, and time that of the slower one, for as many samples as a rank has on average.
    per_step = (few + many) / 2
    for each in results[0].measurements:
        assert each.gpus == RANKS
        # The estimate is corrected for heat, and counters advance in steps. One GPU alone would use far less.
        assert each.energy_joules * per_step == pytest.approx(mean(ranks.joules[each.power_limit_watts]), rel=0.2)
        assert each.time_seconds * per_step == pytest.approx(mean(ranks.seconds[each.power_limit_watts]), rel=0.05)
    for optimizer in optimizers:
        optimizer.end()
    assert ranks.limits == [DEFAULT_WATTS] * RANKS


def test_the_choice_of_rank_0_counts(node: SimulatedNode) -> None:
    ranks = Ranks(node)
    optimizers = ranks.optimizers((Time(), _Same(Time())))
    ranks.train(optimizers, 40, (None, None))
    results = [optimizer.result for optimizer in optimizers]
    assert results == [results[0]] * RANKS
    assert results[0].selector == "Time"
    for optimizer in optimizers:
        optimizer.end()


class _Same:
    """A selector of another name that chooses alike."""

    def __init__(self, other: Selector) -> None:
        self.select = other.select


def test_all_ranks_hold_the_profile_that_rank_0_reads(node: SimulatedNode, tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    ranks = Ranks(node)
    first = ranks.optimizers(profile_file=(file, file))
    ranks.train(first, 40, (None, None))
    for optimizer in first:
        optimizer.end()
    measured = first[0].result
    assert measured is not None
    # The other rank may be on another node, without the file or with one of another training.
    other = tmp_path / "other.json"
    other.write_text(json.dumps({}))
    again = ranks.optimizers(profile_file=(file, other))
    ranks.train(again, 1, (None, None))
    assert [optimizer.results for optimizer in again] == [[measured]] * RANKS
    assert ranks.limits == [measured.power_limit_watts] * RANKS
    assert other.read_text() == "{}"
    for optimizer in again:
        optimizer.end()


def test_all_ranks_measure_again_when_the_metric_of_rank_0_crosses_a_threshold(
    node: SimulatedNode, tmp_path: Path
) -> None:
    ranks = Ranks(node)
    file = tmp_path / "profile.json"
    optimizers = ranks.optimizers(profile_file=(file, file), profile_again_at=((0.5,), (0.5,)))
    for metrics in ((None, 0.9), (0.6, None), (0.7, None)):
        ranks.train(optimizers, 40, metrics)
    assert [len(optimizer.results) for optimizer in optimizers] == [2, 2]
    assert optimizers[0].results == optimizers[1].results
    assert sorted(path.name for path in tmp_path.iterdir()) == ["profile-2.json", "profile.json"]
    for optimizer in optimizers:
        optimizer.end()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"run_or_agent": "/nowhere/agent.sock"}, "rank 1 cannot: no agent answers"),
        ({"limits_watts": (400.0, 200.0)}, "give all the same limits"),
        ({"environment": environment_of(0)}, "several of them measure GPU-"),
        ({"limits_watts": (400.0, 50.0)}, "rank 0 cannot: "),
    ],
)
def test_ranks_that_cannot_measure_together_hold_no_limit_and_say_why(
    node: SimulatedNode, options: dict[str, Any], why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ranks = Ranks(node)
    usual = {"run_or_agent": node.socket, "limits_watts": LIMITS, "environment": environment_of(0)}
    both = "rank 0" in why
    optimizers = ranks.optimizers(
        profile_file=(tmp_path / "profile.json",) * RANKS,
        **{key: (value if both else usual[key], value) for key, value in options.items()},
    )
    ranks.train(optimizers, 8, (None, None))
    assert not any(optimizer.measuring for optimizer in optimizers)
    assert ranks.limits == [DEFAULT_WATTS] * RANKS
    assert why in caplog.text
    assert list(tmp_path.iterdir()) == []
    for optimizer in optimizers:
        optimizer.end()
