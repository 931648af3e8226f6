"""The traces of one job: configurations, epochs at each power limit, and training paths."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from wattloop.energy.cost import CostModel
from wattloop.errors import InputError, UsageError
from wattloop.power.selectors import Cost, MeasuredLimit
from wattloop_planner.bandit.configuration import MAX_CONFIGURATIONS, Configuration, ConfigurationSpace, Parameter
from wattloop_research.simulation.configurations import (
    Curves,
    ParameterOption,
    epochs_of,
    level_curves,
    parameters_of_paths,
    paths_by_configuration,
)
from wattloop_research.simulation.simulated_attempt import Epoch
from wattloop_research.simulation.traces import PowerTrace, TracedWorkload, TrainingPath, TrainTrace


@dataclass(frozen=True)
class ConfigurationTrace:
    """The trace of one configuration.

    Attributes:
        limit_watts: The power limit of lowest epoch cost.
        profiled: A profiled epoch: mean time and mean energy over the limits.
    """

    configuration: Configuration
    limit_watts: float
    best: Epoch
    profiled: Epoch
    highest_limit_watts: float
    unoptimised: Epoch


@dataclass(frozen=True)
class JobTrace:
    """A workload on one GPU model for one eta.

    Attributes:
        max_power_watts: The highest limit in the power file.
        limits: Number of power limits measured for the offered sizes.
        configurations: The offered configurations, in rising order.
        paths: Training paths by target metric and configuration.
        curves: Curves of the training paths by target metric, configuration and run.
    """

    workload: TracedWorkload
    eta: float
    max_power_watts: float
    limits: int
    parameters: tuple[Parameter, ...]
    configurations: tuple[ConfigurationTrace, ...]
    paths: dict[float, dict[Configuration, tuple[TrainingPath, ...]]]
    curves: dict[float, Curves]

    @cached_property
    def batch_sizes(self) -> tuple[int, ...]:
        """The offered batch sizes, in rising order."""
        return tuple(sorted({each.configuration.batch_size for each in self.configurations}))

    @cached_property
    def by_configuration(self) -> dict[Configuration, ConfigurationTrace]:
        """The traces by configuration."""
        return {each.configuration: each for each in self.configurations}

    def default(self, batch_size: int) -> ConfigurationTrace:
        """The default configuration with a default batch size."""
        values = tuple((parameter.name, parameter.default) for parameter in self.parameters)
        return self.by_configuration[Configuration(batch_size, values)]

    @property
    def automatic_recurrences(self) -> int:
        """2·|B|·|P|, as in the Zeus paper (section 6.1)."""
        return 2 * len(self.configurations) * self.limits

    def expected_cost_joules(
        self, configuration: Configuration, target_metric: float, max_epochs: int, epoch: Epoch
    ) -> float:
        """Expected cost of one recurrence with a configuration, retries included; infinite if no path reaches.

        A failed attempt runs all its epochs. If a fraction f of the paths fails, f / (1 − f) attempts fail
        on average before one succeeds.
        """
        paths = self.paths[target_metric][configuration]
        reaching = [p.target_epoch for p in paths if p.target_epoch is not None and p.target_epoch <= max_epochs]
        if not reaching:
            return math.inf
        failures = (len(paths) - len(reaching)) / len(reaching)
        return epoch.cost_joules * (math.fsum(reaching) / len(reaching) + failures * max_epochs)

    def best_fixed_cost_joules(self, target_metric: float, max_epochs: int) -> float:
        """Expected cost of one recurrence with the best fixed configuration and power limit.

        If none reaches the target, it is the cost of one exhausted attempt with the cheapest one.
        """
        expected = min(
            self.expected_cost_joules(each.configuration, target_metric, max_epochs, each.best)
            for each in self.configurations
        )
        return (
            expected if expected < math.inf else max_epochs * min(each.best.cost_joules for each in self.configurations)
        )

    def is_reachable(self, target_metric: float, max_epochs: int) -> bool:
        """Whether a training path of any offered configuration reaches the target within the epochs."""
        paths = (path for of_configuration in self.paths[target_metric].values() for path in of_configuration)
        return any(path.target_epoch is not None and path.target_epoch <= max_epochs for path in paths)


def job_trace(
    train: TrainTrace,
    power: PowerTrace,
    *,
    workload: TracedWorkload,
    targets: tuple[float, ...],
    eta: float,
    parameters: Sequence[ParameterOption] = (),
) -> JobTrace:
    """Look up a job in the two traces.

    Args:
        train: Epochs to each target.
        power: Time and energy of an epoch at each limit.
        workload: Dataset, network and optimizer.
        targets: The target metrics in use; sizes with rows for all of them are offered.
        eta: Weight of energy.
        parameters: Further parameters that the policy chooses.

    Raises:
        InputError: A trace has no row of the workload, target or configuration.
        UsageError: eta is out of range, or a parameter does not fit the train file.
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
    measured = {configuration.batch_size for configuration in power.epochs[workload]}
    offered = sorted(measured.intersection(*(by_target[target] for target in targets)))
    if not offered:
        found = f"no batch size of {workload} that {power.source} has too"
        raise InputError(train.source, found, "at least one batch size in both files", 1, "batch_size")
    by_size = {target: {size: by_target[target][size] for size in offered} for target in targets}
    all_paths = (path for of_target in by_size.values() for of_size in of_target.values() for path in of_size)
    chosen = parameters_of_paths(train.source, parameters, all_paths)
    paths = {target: paths_by_configuration(by_size[target], chosen) for target in targets}
    space = ConfigurationSpace(tuple(offered), offered[0], chosen)
    if space.size > MAX_CONFIGURATIONS:
        found = f"{space.size} configurations of batch size and parameters"
        raise InputError(train.source, found, f"at most {MAX_CONFIGURATIONS}", 1, "batch_size")
    for target in targets:
        missing = next((each for each in space.configurations if each not in paths[target]), None)
        if missing is not None:
            found = f"no row of batch size {missing} for target metric {target:g} of {workload}"
            raise InputError(train.source, found, "rows of every batch size with every value", 1, "batch_size")
    epochs: dict[Configuration, tuple[MeasuredLimit, ...]] = {}
    for each in space.configurations:
        of_each = epochs_of(power.epochs[workload], each)
        if of_each is None:
            message = f"no row of batch size {each} of {workload}"
            raise InputError(power.source, message, "rows of every batch size with every value", 1, "batch_size")
        epochs[each] = of_each
    traces = tuple(_trace(each, limits, eta, power.max_power_watts) for each, limits in epochs.items())
    limits = len({m.power_limit_watts for of_configuration in epochs.values() for m in of_configuration})
    levels = {level: paths_by_configuration(of_level, chosen) for level, of_level in by_target.items()}
    curves = {target: level_curves(levels, target) for target in targets}
    return JobTrace(workload, eta, power.max_power_watts, limits, chosen, traces, paths, curves)


def check_default(trace: JobTrace, default_batch_size: int, train: TrainTrace, power: PowerTrace) -> None:
    """Check that the default batch size is offered.

    Raises:
        UsageError: The default batch size has no rows in one of the files.
    """
    if default_batch_size not in trace.batch_sizes:
        measured = {configuration.batch_size for configuration in power.epochs[trace.workload]}
        lacking = power if default_batch_size not in measured else train
        offered = ", ".join(str(size) for size in trace.batch_sizes)
        raise UsageError(
            f"{lacking.source}: column batch_size: found no row of the default batch size {default_batch_size} for "
            f"{trace.workload}, expected one of the batch sizes offered: {offered}"
        )


def _trace(
    configuration: Configuration, limits: tuple[MeasuredLimit, ...], eta: float, max_power_watts: float
) -> ConfigurationTrace:
    model = CostModel(eta, max_power_watts)

    def epoch(energy: float, time: float) -> Epoch:
        return Epoch(energy, time, model.cost_joules(energy, time))

    chosen, highest = Cost(eta, max_power_watts).select(limits), limits[-1]
    return ConfigurationTrace(
        configuration,
        chosen.power_limit_watts,
        epoch(chosen.energy_joules, chosen.time_seconds),
        epoch(
            math.fsum(m.energy_joules for m in limits) / len(limits),
            math.fsum(m.time_seconds for m in limits) / len(limits),
        ),
        highest.power_limit_watts,
        epoch(highest.energy_joules, highest.time_seconds),
    )


def _no_workload(source: str, workload: TracedWorkload, known: list[TracedWorkload]) -> InputError:
    listing = "; ".join(str(other) for other in known[:20])
    return InputError(source, f"no row of {workload}", f"one of: {listing}", 1, "dataset")
