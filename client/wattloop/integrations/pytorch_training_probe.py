"""Probes in a PyTorch training: other configurations run on copies of it, and the best is used.

When the metric crosses a threshold, each configuration of the grid (`wattloop.run.probe_grid`) trains a copy of the
model and the optimizer for a few steps. The energy and the time of the steps and the change of the loss give what a
unit of progress costs. The live training goes on with the cheapest configuration. Its weights, the state of its
optimizer, its random numbers and the position of its data stay as they are, bit for bit.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, SupportsFloat

import torch

from wattloop.arguments import metric_value
from wattloop.energy.cost import CostModel
from wattloop.errors import UsageError
from wattloop.integrations.pytorch_probe import (
    Step,
    copied,
    repeated,
    set_dropout,
    set_learning_rate,
    unchanged_generators,
)
from wattloop.power.shared_totals import SharedReading
from wattloop.power.thresholds import Thresholds
from wattloop.printable import ascii_text
from wattloop.run.probe_grid import ProbeCost, ProbedConfiguration, ProbePlan, Trial, cheapest, grid, left_out
from wattloop.run.probe_ranks import ProbeRanks
from wattloop.run.probing import unchanged_random_numbers
from wattloop.run.training_run import Run
from wattloop.wire.torch_group import TorchGroup, torch_group
from wattloop.wire.training_messages import MAX_PROBLEM_CHARACTERS, ProbeChoice, ProbeReport

logger = logging.getLogger("wattloop")

Apply = Callable[[str, torch.nn.Module, torch.optim.Optimizer], None]
KNOWN_PARAMETERS: Mapping[str, Apply] = {
    "learning_rate": lambda value, model, optimizer: set_learning_rate(float(value), model, optimizer),
    "dropout": lambda value, model, optimizer: set_dropout(float(value), model, optimizer),
}
SHARDED = ("FullyShardedDataParallel", "FSDPModule")
# Energy counters advance every 20 to 100 ms.
MIN_MEASURED_SECONDS = 2.0


@dataclass(frozen=True)
class _Copy:
    """What a trial trains, with batches for it."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    batches: Iterator[Any]


class TrainingProbe:
    """Probes a training at the thresholds of a plan.

    Nothing is probed outside Wattloop, in mode Advise, and by an attempt that measures power limits, whose epochs must
    be alike.

    All ranks of a process group make it, and call `on_validation` equally often. They try the same configurations in
    the same order, add up their energies, take the time of the slowest, and go on with the same choice.

    Args:
        run: A `wattloop.Run` that has begun.
        model: The live model; a DistributedDataParallel too.
        optimizer: Its optimizer.
        plan: When to probe, and what to try.
        step: A training step, ``step(model, optimizer, batch)``. It must use the model and the optimizer that it gets.
        loss: The loss of a model on data that is the same each time, ``loss(model)``; its fall is the progress. The
            model is a copy in evaluation mode.
        data: Makes the batches of an epoch, ``data(samples)``, such as a data loader with so many samples of this
            process in a batch. No iterator or generator: every epoch iterates it.
        apply: For further parameters of the plan, ``apply(value, model, optimizer)`` with the value as a text;
            ``learning_rate`` and ``dropout`` are known.
        trials_file: Where rank 0 appends each trial as a line of JSON; default: nowhere.
        group: Finds the process group of the ranks; default: that of PyTorch.

    Raises:
        UsageError: The run has not begun, the model is sharded, a parameter of the plan has no function or is none of
            the job's, or a threshold is not before the target.
    """

    def __init__(
        self,
        run: Run,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        plan: ProbePlan,
        step: Step,
        loss: Callable[[torch.nn.Module], SupportsFloat],
        data: Callable[[int], Iterable[Any]],
        apply: Mapping[str, Apply] | None = None,
        trials_file: str | Path | None = None,
        group: Callable[[], TorchGroup | None] = torch_group,
    ) -> None:
        if not run.active:
            raise UsageError("the run has not begun, or has ended; make the probe inside of `with run:`")
        if any(each.__name__ in SHARDED for each in type(model).__mro__):
            raise UsageError("the model is sharded (FSDP); probes copy the whole model on each rank")
        self._run = run
        self._live = model
        self._optimizer = optimizer
        self._step, self._loss, self._data = step, loss, data
        self._apply = {**KNOWN_PARAMETERS, **(apply or {})}
        self._trials_file = None if trials_file is None else Path(trials_file)
        self._plan = self._applicable(plan)
        self._current = self._initial()
        self._left(() if self._plan is None else self._plan.at)
        self._loader: Iterable[Any] | None = None
        self._cost = ProbeCost()
        self._choices: tuple[ProbeChoice, ...] = ()
        self._problem = ""
        self._ranks = None if self._plan is None else ProbeRanks(run, group(), _synchronize)
        if self._plan is not None and run.environment.profile_power_limits:
            self._end("this attempt measures power limits, for which its epochs must be alike")

    @property
    def configuration(self) -> ProbedConfiguration:
        """What is in force, of what the plan varies."""
        return self._current

    @property
    def batches(self) -> Iterable[Any]:
        """The batches of an epoch of the live training, of the batch size in force."""
        if self._loader is None:
            self._loader = self._made(self._current)
        return self._loader

    def on_validation(self, metric: SupportsFloat | None = None) -> None:
        """Probe if the target's metric has crossed a threshold; at the end of an epoch, after `run.report`.

        Args:
            metric: The metric; only that of rank 0 counts.

        Raises:
            InputError: The metric is not one number.
            UsageError: The step changed the live model or its optimizer.
        """
        plan, ranks = self._plan, self._ranks
        if plan is None or ranks is None:
            return
        threshold = ranks.agreed(self._crossed(None if metric is None else metric_value(metric)))
        if threshold is not None:
            self._thresholds.crossed(threshold)
            start = ranks.read(f"the probe at {threshold:g}", self._limits(plan))
            if start is not None:
                self._probe(plan, ranks, threshold, start)
        if ranks.problem:
            self._end(ranks.problem)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs: the thresholds that are left, and what is in force."""
        return {"left": list(self._thresholds.left), **asdict(self._current)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint, after model and optimizer have theirs.

        A probe that had not ended at the checkpoint begins again when the metric is at its threshold.
        """
        if self._plan is None:
            return
        self._left(state["left"])
        known = {str(name): str(value) for name, value in state["parameters"]}
        parameters = tuple((name, known.get(name, value)) for name, value in self._current.parameters)
        self._use(ProbedConfiguration(state["batch_size"], parameters, state["power_limit_watts"]))
        self._report()

    def _applicable(self, plan: ProbePlan) -> ProbePlan | None:
        """The plan; None if this run keeps its configuration.

        Raises:
            UsageError: The plan is not for this training.
        """
        missing = next((name for name in plan.parameters if name not in self._apply), None)
        if missing is not None:
            raise UsageError(f"parameters has {missing}; pass apply={{{missing!r}: function(value, model, optimizer)}}")
        environment = self._run.environment
        if not environment.managed or environment.advise:
            return None
        missing = next((name for name in plan.parameters if name.upper() not in environment.parameters), None)
        if missing is not None:
            raise UsageError(
                f"parameters has {missing}, and the job has no such parameter; add it to spec.parameters, where its "
                "only candidate is the value to begin with"
            )
        target = environment.target
        if target is not None and any(map(target.reached_by, plan.at)):
            beyond = next(filter(target.reached_by, plan.at))
            raise UsageError(
                f"at has {beyond:g}; it must be a value that the metric comes to before the target "
                f"{target.threshold:g}, where the training ends"
            )
        return plan

    def _end(self, problem: str) -> None:
        """Probe no more."""
        logger.warning("the training is not probed: %s", problem)
        self._plan, self._problem = None, problem
        self._report()

    def _initial(self) -> ProbedConfiguration:
        run, names = self._run, () if self._plan is None else tuple(self._plan.parameters)
        values = tuple((name, run.parameters[name.upper()]) for name in names)
        return ProbedConfiguration(run.batch_size, values, run.gpus.limit_watts)

    def _left(self, values: Iterable[float]) -> None:
        target = self._run.environment.target
        self._thresholds = Thresholds(tuple(values), rises=target is None or target.maximize)

    def _crossed(self, metric: float | None) -> float | None:
        """The threshold that the metric has crossed, the furthest of several; None in an epoch after which none is."""
        run, target = self._run, self._run.environment.target
        if metric is None or run.environment.rank != 0:
            return None
        reaches = target is not None and target.reached_by(metric)
        if reaches or run.stopped or run.completed_epochs + 1 >= run.max_epochs:
            return None
        before = self._thresholds.left
        crossed = self._thresholds.crossed(metric)
        return before[len(before) - len(self._thresholds.left) - 1] if crossed else None

    def _limits(self, plan: ProbePlan) -> tuple[int, ...]:
        """The limits of the plan that may be held."""
        allowed = self._run.gpus.allowed_watts
        return tuple(each for each in plan.power_limits_watts if allowed and allowed[0] <= each <= allowed[1])

    def _probe(self, plan: ProbePlan, ranks: ProbeRanks, threshold: float, start: SharedReading) -> None:
        limits = self._limits(plan)
        problems = left_out(plan, limits, self._run.gpus.allowed_watts)
        combinations = grid(plan, self._current, limits, self._run.environment.ranks)
        if start.interrupted or not start.gpus:
            problems.append("no energy is measured: no agent answers for the GPUs of all ranks")
        trials: list[Trial] = []
        seconds_left, last = self._cost.seconds_left(start.time_seconds, plan.max_time_percent), start
        before: float | None = None
        for number, configuration in enumerate(combinations if start.gpus and not start.interrupted else ()):
            if number == plan.max_trials or seconds_left <= self._cost.longest_seconds:
                bound = "max_trials" if number == plan.max_trials else "max_time_percent"
                problems.append(f"{bound} allows {number} of {len(combinations)} combinations")
                break
            before = self._loss_now(ranks) if before is None else before
            if before is None:
                problems.append("there is no memory for a copy of the model")
                break
            trial, end = self._trial(plan, ranks, configuration, before, f"trial {number} at {threshold:g}")
            if end is None:
                return
            if not end.interrupted:
                seconds = end.time_seconds - last.time_seconds
                self._cost = self._cost.with_trial(end.energy_joules - last.energy_joules, seconds)
                seconds_left, last = seconds_left - seconds, end
            trials.append(trial)
            self._record(threshold, trial)
        self._choose(threshold, trials, start.gpus, len(combinations), problems)

    def _trial(
        self, plan: ProbePlan, ranks: ProbeRanks, configuration: ProbedConfiguration, loss_before: float, moment: str
    ) -> tuple[Trial, SharedReading | None]:
        """Train a copy with a configuration; None if the ranks can no longer probe together."""
        gpus, limits = self._run.gpus, self._limits(plan)
        trial = Trial(configuration, steps_per_measured=(plan.warm_up_steps + plan.steps) / plan.steps)
        loss_change = math.nan
        edges: list[SharedReading] = []
        try:
            with self._limit(configuration.power_limit_watts) as refused, self._copy(configuration) as trained:
                for steps in (plan.warm_up_steps, plan.steps):
                    for _ in range(steps):
                        self._step(trained.model, trained.optimizer, next(trained.batches))
                        self._run.keep_alive()
                    # What was before the measured steps does not matter.
                    lost = gpus.was_interrupted() and bool(edges)
                    edge = ranks.read(f"{moment}, {len(edges)}", limits, interrupted=refused or lost)
                    if edge is None:
                        return trial, None
                    edges.append(edge)
                trained.model.eval()
                loss_change = float(self._loss(trained.model)) - loss_before
        except torch.cuda.OutOfMemoryError:
            # The other ranks would wait for this one.
            if not ranks.is_one:
                raise
            logger.warning("%s: out of memory", configuration)
        end = ranks.read(f"{moment}, end", limits, note=json.dumps(loss_change))
        if end is None or len(edges) < 2 or any(edge.interrupted for edge in edges):
            return trial, end
        change = float(json.loads(end.note))
        measured = replace(
            trial,
            energy_joules=edges[1].energy_joules - edges[0].energy_joules,
            time_seconds=edges[1].time_seconds - edges[0].time_seconds,
            loss_change=change if math.isfinite(change) else None,
        )
        return measured, end

    @contextlib.contextmanager
    def _copy(self, configuration: ProbedConfiguration) -> Iterator[_Copy]:
        """A copy in training mode with a configuration, and batches of its size."""
        with unchanged_random_numbers(), unchanged_generators(()):
            loader = self._made(configuration)
            with unchanged_generators(loader), copied(self._module, self._optimizer, ()) as (model, optimizer):
                model.train()
                self._set(configuration, model, optimizer)
                yield _Copy(self._wrapped(model), optimizer, repeated(loader))

    def _loss_now(self, ranks: ProbeRanks) -> float | None:
        """The loss of a copy, in evaluation mode as after each trial; None without memory for it."""
        try:
            with copied(self._module, self._optimizer, ()) as (model, _):
                return float(self._loss(self._wrapped(model).eval()))
        except torch.cuda.OutOfMemoryError:
            if not ranks.is_one:
                raise
            return None

    @property
    def _module(self) -> torch.nn.Module:
        live = self._live
        return live.module if isinstance(live, torch.nn.parallel.DistributedDataParallel) else live

    def _wrapped(self, model: torch.nn.Module) -> torch.nn.Module:
        live = self._live
        if not isinstance(live, torch.nn.parallel.DistributedDataParallel):
            return model
        return torch.nn.parallel.DistributedDataParallel(
            model, device_ids=live.device_ids, find_unused_parameters=live.find_unused_parameters
        )

    @contextlib.contextmanager
    def _limit(self, watts: float | None) -> Iterator[bool]:
        """Hold the limit of a trial, then again what was held before; yields whether it is refused."""
        gpus = self._run.gpus
        before = gpus.limit_watts
        is_other = watts is not None and watts != before
        try:
            if watts is not None and is_other:
                gpus.hold(watts)
            yield is_other and bool(gpus.refusal)
        finally:
            self._hold(before)

    def _hold(self, watts: float | None) -> None:
        gpus = self._run.gpus
        if watts is None:
            gpus.release()
        elif watts != gpus.limit_watts:
            gpus.hold(watts)

    def _set(
        self, configuration: ProbedConfiguration, model: torch.nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        """Set the parameters that differ from those in force."""
        in_force = dict(self._current.parameters)
        for name, value in configuration.parameters:
            if value != in_force.get(name):
                self._apply[name](value, model, optimizer)

    def _use(self, configuration: ProbedConfiguration) -> None:
        """Go on with a configuration in the live training."""
        self._set(configuration, self._module, self._optimizer)
        self._hold(configuration.power_limit_watts)
        if configuration.batch_size != self._current.batch_size:
            self._loader = None
        self._current = configuration

    def _made(self, configuration: ProbedConfiguration) -> Iterable[Any]:
        loader = self._data(max(configuration.batch_size // self._run.environment.ranks, 1))
        if isinstance(loader, Iterator):
            raise UsageError("data made an iterator, which ends once; return a data loader or a list of batches")
        return loader

    def _choose(self, threshold: float, trials: list[Trial], gpus: int, combinations: int, problems: list[str]) -> None:
        own, best = self._run.gpus, None
        if trials and own.count and own.max_power_limit_watts > 0:
            model = CostModel(self._run.environment.eta, own.max_power_limit_watts * gpus / own.count)
            best = cheapest(trials, model)
        if trials and best is None:
            problems.append("no trial was measured and lowered the loss; the configuration stays")
        elif best is not None and (best.time_seconds or 0.0) < MIN_MEASURED_SECONDS:
            problems.append(
                f"the chosen trial was measured for {best.time_seconds:.2g} s, and energies of less than "
                f"{MIN_MEASURED_SECONDS:g} s are uncertain; raise steps"
            )
        chosen = self._current if best is None else best.configuration
        self._use(chosen)
        self._choices = (*self._choices, chosen.choice(threshold, len(trials), combinations))
        self._problem = "; ".join(problems)
        logger.info("probe at %g: %s, of %d trials, %d combinations", threshold, chosen, len(trials), combinations)
        if problems:
            logger.warning("probe at %g: %s", threshold, self._problem)
        self._report()

    def _record(self, threshold: float, trial: Trial) -> None:
        self._report()
        if self._trials_file is not None and self._run.environment.rank == 0:
            try:
                with self._trials_file.open("a") as stream:
                    stream.write(json.dumps({"threshold": threshold, **asdict(trial)}) + "\n")
            except OSError as error:
                # The other ranks would wait for this one.
                logger.warning("no further trial is written to %s: %s", self._trials_file, error)
                self._trials_file = None

    def _report(self) -> None:
        cost, problem = self._cost, ascii_text(self._problem, MAX_PROBLEM_CHARACTERS)
        report = ProbeReport(cost.trials, cost.energy_joules, cost.time_seconds, self._choices, problem)
        self._run.record_probes(report, self._current.batch_size)


def _synchronize() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
