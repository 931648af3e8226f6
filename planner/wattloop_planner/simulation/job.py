"""The traces of one job: batch sizes, epochs at each power limit, and training paths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from wattloop.cost import CostModel
from wattloop.errors import InputError, UsageError
from wattloop.power.selectors import Cost, Measurement
from wattloop_planner.simulation.attempt import Epoch
from wattloop_planner.simulation.traces import PowerTrace, TrainingPath, TrainTrace, Workload


@dataclass(frozen=True)
class BatchSizeTrace:
    """The trace of one batch size.

    Attributes:
        batch_size: The batch size.
        limit_watts: The power limit of lowest epoch cost.
        best: An epoch at that limit.
        profiled: A profiled epoch: mean time and mean energy over the limits.
        highest_limit_watts: The highest measured limit.
        unoptimised: An epoch at the highest limit.
    """

    batch_size: int
    limit_watts: float
    best: Epoch
    profiled: Epoch
    highest_limit_watts: float
    unoptimised: Epoch


@dataclass(frozen=True)
class JobTrace:
    """A workload on one GPU model for one eta.

    Attributes:
        workload: Dataset, network and optimizer.
        eta: Weight of energy.
        max_power_watts: The highest limit in the power file.
        limits: Number of power limits measured for the offered sizes.
        sizes: The offered batch sizes, in rising order.
        paths: Training paths by target metric and batch size.
    """

    workload: Workload
    eta: float
    max_power_watts: float
    limits: int
    sizes: tuple[BatchSizeTrace, ...]
    paths: dict[float, dict[int, tuple[TrainingPath, ...]]]

    @cached_property
    def batch_sizes(self) -> tuple[int, ...]:
        """The offered batch sizes, in rising order."""
        return tuple(size.batch_size for size in self.sizes)

    @cached_property
    def by_batch_size(self) -> dict[int, BatchSizeTrace]:
        """The traces by batch size."""
        return {size.batch_size: size for size in self.sizes}

    @property
    def automatic_recurrences(self) -> int:
        """2·|B|·|P|, as in the Zeus paper (section 6.1)."""
        return 2 * len(self.sizes) * self.limits

    def expected_cost_joules(self, batch_size: int, target_metric: float, max_epochs: int, epoch: Epoch) -> float:
        """Expected cost of one recurrence with this size, retries included; infinite if no path reaches the target.

        A failed attempt runs all its epochs. If a fraction f of the paths fails, f / (1 − f) attempts fail
        on average before one succeeds.
        """
        paths = self.paths[target_metric][batch_size]
        reaching = [p.target_epoch for p in paths if p.target_epoch is not None and p.target_epoch <= max_epochs]
        if not reaching:
            return math.inf
        failures = (len(paths) - len(reaching)) / len(reaching)
        return epoch.cost_joules * (math.fsum(reaching) / len(reaching) + failures * max_epochs)

    def best_fixed_cost_joules(self, target_metric: float, max_epochs: int) -> float:
        """Expected cost of one recurrence with the best fixed batch size and power limit.

        If no size reaches the target, it is the cost of one exhausted attempt with the cheapest size.
        """
        expected = min(
            self.expected_cost_joules(size.batch_size, target_metric, max_epochs, size.best) for size in self.sizes
        )
        return expected if expected < math.inf else max_epochs * min(size.best.cost_joules for size in self.sizes)

    def is_reachable(self, target_metric: float, max_epochs: int) -> bool:
        """Whether a training path of any offered size reaches the target within the epochs."""
        paths = (path for size in self.batch_sizes for path in self.paths[target_metric][size])
        return any(path.target_epoch is not None and path.target_epoch <= max_epochs for path in paths)


def job_trace(
    train: TrainTrace, power: PowerTrace, *, workload: Workload, targets: tuple[float, ...], eta: float
) -> JobTrace:
    """Look up a job in the two traces.

    Args:
        train: Epochs to each target.
        power: Time and energy of an epoch at each limit.
        workload: Dataset, network and optimizer.
        targets: The target metrics in use; sizes with rows for all of them are offered.
        eta: Weight of energy.

    Raises:
        InputError: A trace has no row of the workload or target.
        UsageError: eta is out of range.
    """
    if workload not in train.paths:
        raise _no_workload(train.source, workload, list(train.paths))
    if workload not in power.epochs:
        raise _no_workload(power.source, workload, list(power.epochs))
    by_target = train.paths[workload]
    for target in targets:
        if target not in by_target:
            known = ", ".join(f"{t:g}" for t in sorted(by_target))
            found = f"no row of target metric {target:g} for {workload}"
            raise InputError(train.source, found, f"one of the targets {known}", 1, "target_metric")
    offered = sorted(set(power.epochs[workload]).intersection(*(by_target[target] for target in targets)))
    if not offered:
        found = f"no batch size of {workload} that {power.source} has too"
        raise InputError(train.source, found, "at least one batch size in both files", 1, "batch_size")
    sizes = tuple(_size_trace(size, power.epochs[workload][size], eta, power.max_power_watts) for size in offered)
    limits = len({m.power_limit_watts for size in offered for m in power.epochs[workload][size]})
    paths = {target: {size: by_target[target][size] for size in offered} for target in targets}
    return JobTrace(workload, eta, power.max_power_watts, limits, sizes, paths)


def check_default(trace: JobTrace, default_batch_size: int, train: TrainTrace, power: PowerTrace) -> None:
    """Check that the default batch size is offered.

    Raises:
        UsageError: The default batch size has no rows in one of the files.
    """
    if default_batch_size not in trace.batch_sizes:
        lacking = power if default_batch_size not in power.epochs[trace.workload] else train
        offered = ", ".join(str(size) for size in trace.batch_sizes)
        raise UsageError(
            f"{lacking.source}: column batch_size: found no row of the default batch size {default_batch_size} for "
            f"{trace.workload}, expected one of the batch sizes offered: {offered}"
        )


def _size_trace(size: int, limits: tuple[Measurement, ...], eta: float, max_power_watts: float) -> BatchSizeTrace:
    model = CostModel(eta, max_power_watts)

    def epoch(energy: float, time: float) -> Epoch:
        return Epoch(energy, time, model.cost_joules(energy, time))

    chosen, highest = Cost(eta, max_power_watts).select(limits), limits[-1]
    return BatchSizeTrace(
        size,
        chosen.power_limit_watts,
        epoch(chosen.energy_joules, chosen.time_seconds),
        epoch(
            math.fsum(m.energy_joules for m in limits) / len(limits),
            math.fsum(m.time_seconds for m in limits) / len(limits),
        ),
        highest.power_limit_watts,
        epoch(highest.energy_joules, highest.time_seconds),
    )


def _no_workload(source: str, workload: Workload, known: list[Workload]) -> InputError:
    listing = "; ".join(str(other) for other in known[:20])
    return InputError(source, f"no row of {workload}", f"one of: {listing}", 1, "dataset")
