"""`PowerLimitOptimizer`: chooses the power limit while a training runs, with or without the operator."""

import logging
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self, SupportsFloat

from wattloop.arguments import gpu_names, metric_value, number_between
from wattloop.errors import UsageError, WattloopError
from wattloop.gpus.agent import SOCKET_VARIABLE, AgentConnection
from wattloop.gpus.process_gpus import gpus_of_process
from wattloop.power.profile_result import ProfileResult, parsed_result, profile_result, stored_result
from wattloop.power.selectors import Cost, MeasuredLimit, Selector
from wattloop.power.sequential_design import Mode, Requirements, SequentialDesign, limits_to_measure
from wattloop.power.shared_totals import SharedReading, TotalsExchange
from wattloop.power.thresholds import Thresholds
from wattloop.printable import short_repr
from wattloop.run.held_gpus import ProcessGpus
from wattloop.run.training_run import Run
from wattloop.wire.launcher import process_rank
from wattloop.wire.torch_group import LostStoreError, TorchGroup, torch_group

logger = logging.getLogger("wattloop")

# A training by hand does not wait for an agent that restarts: it has nothing to lose but the measurement.
AGENT_START_SECONDS = 0.0
SMALLEST = math.nextafter(0, 1)
NOT_MEASURED = "power limits are not measured"
WITHOUT_GROUP = (
    "which would wait for each other's limits; call torch.distributed.init_process_group before the first epoch, so "
    "that they measure together, or measure with one process, then give all its profile_file"
)
MEASURE_AGAIN = "measure again"


class PowerLimitOptimizer:
    """Measures power limits during training, chooses one, and holds it until the optimizer ends.

    It repeats a limit until the choice is certain or a budget is spent, and corrects for the temperature
    of the GPUs. Without an agent, or if no limit may be held, it logs one warning and does nothing. If the
    process dies, the agent restores the GPUs.

    The ranks of a process group, each with GPUs of its own, measure together: they hold the same limits over the
    same steps, add up their energies, take the time of the slowest, and hold the same choice. All must call the
    same methods with the same arguments; rank 0 reads and writes `profile_file`, and its metric counts.

    Args:
        run_or_agent: A `wattloop.Run` that has begun, the path of an agent's socket, or an
            `AgentConnection`; None: the agent of ``WATTLOOP_AGENT_SOCKET``. If the operator decides the
            power limit of the run, the optimizer does nothing.
        selector: Selects among the measurements; default: `Cost` with η = 0.5.
        mode: Measured: each limit is measured. Fitted: four limits first, others if they are uncertain.
        requirements: The margin, the certainty and the budget.
        limits_watts: The limits to choose from; default: the allowed range in steps of 25 W or more.
        profile_again_at: Values of the metric of `on_epoch_end` at which the limits are measured again:
            rising values for a metric that rises, falling values for one that falls.
        profile_file: Where to write each result as JSON; the second is ``NAME-2.SUFFIX``, and so on. If the file
            has a result for these limits and as many GPUs, in total or of each rank, it is used, and nothing is
            measured: delete it, or name another, for another training.
        gpus: The GPUs of this process, by index or UUID; default: as for `wattloop.Run`.
        environment: The variables to read; default: the process's environment.
        group: Finds the process group of the ranks when the first epoch begins; default: that of PyTorch.

    Attributes:
        results: The result that was read, and that of each completed measurement; the same on all ranks of a group.

    Raises:
        UsageError: An argument is invalid, or `select` of the selector does not return one of the
            measurements that it gets.

    Example:
        >>> with PowerLimitOptimizer(environment={}) as optimizer:  # without an agent: a warning, no limit
        ...     optimizer.on_epoch_begin()
        ...     optimizer.on_step_end()
        ...     optimizer.on_epoch_end()
        >>> optimizer.results
        []
    """

    def __init__(
        self,
        run_or_agent: Run | AgentConnection | str | Path | None = None,
        selector: Selector | None = None,
        mode: Mode = "Measured",
        *,
        requirements: Requirements | None = None,
        limits_watts: Sequence[float] | None = None,
        profile_again_at: Sequence[float] = (),
        profile_file: str | Path | None = None,
        gpus: Sequence[int | str] | None = None,
        environment: Mapping[str, str] | None = None,
        group: Callable[[], TorchGroup | None] = torch_group,
    ) -> None:
        self.results: list[ProfileResult] = []
        self._variables = os.environ if environment is None else environment
        self._selector = Cost(0.5) if selector is None else selector
        self._mode = mode
        if requirements is not None and not isinstance(requirements, Requirements):
            raise UsageError(
                f"requirements is {short_repr(requirements)}; it must be such as Requirements(margin=0.02)"
            )
        self._requirements = requirements or Requirements()
        self._limits_watts = None if limits_watts is None else _limits(limits_watts)
        self._thresholds = Thresholds(profile_again_at)
        if profile_file is not None and not isinstance(profile_file, (str, Path)):
            raise UsageError(f"profile_file is {short_repr(profile_file)}; it must be a path")
        self._profile_file = None if profile_file is None else Path(profile_file)
        self._run = run_or_agent if isinstance(run_or_agent, Run) else None
        self._gpus = self._gpus_of(run_or_agent, gpus)
        self._design: SequentialDesign | None = None
        self._group = group
        self._exchange: TotalsExchange | None = None
        self._problem = ""
        self._measured_gpus = 0
        self._begun = self._ended = False
        self._check()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def result(self) -> ProfileResult | None:
        """The newest result; None before the first measurement is complete."""
        return self.results[-1] if self.results else None

    @property
    def measuring(self) -> bool:
        """Whether limits are being measured."""
        return self._design is not None

    def on_epoch_begin(self, epoch: int | None = None) -> None:  # noqa: ARG002 - trainers pass it
        """Begin an epoch: the measurement begins or continues."""
        self._begin()
        design = self._design
        if design is not None and design.recorder.has_begun:
            shared = self._shared("the beginning of an epoch")
            if shared is not None and shared.interrupted:
                design.restart_window()
            elif shared is not None:
                design.recorder.resume(shared.totals)

    def on_step_end(self, samples: float = 1.0) -> None:
        """Count an optimizer step. Most steps read nothing.

        Args:
            samples: Number of samples of the step on this rank, if that differs between steps.

        Raises:
            UsageError: `samples` is not positive and finite.
        """
        samples = number_between(samples, "the number of samples", SMALLEST, math.inf, "a positive number")
        self._begin()
        design = self._design
        if design is None or not design.step_done(samples):
            return
        shared = self._shared("a step")
        if shared is None:
            return
        if shared.interrupted:
            design.restart_window()
            return
        # The choice of all ranks follows from the windows, so they must be the same to the last digit.
        design.recorder.samples = shared.samples
        before = design.limit_watts
        try:
            design.add_totals(shared.totals)
        except Exception as error:  # noqa: BLE001 - a user's selector must not end a long training
            logger.warning("power limits are no longer measured, and none is held: the selector failed: %r", error)
            self._design = None
            self._gpus.release()
            return
        if design.reason is not None and design.choice is not None:
            self._finish(profile_result(design, design.choice, design.reason))
        elif design.limit_watts != before:
            self._hold(design.limit_watts)

    def on_epoch_end(self, epoch: int | None = None, metric: SupportsFloat | None = None) -> None:  # noqa: ARG002
        """End an epoch: what follows, such as an evaluation, is not measured.

        Args:
            epoch: Not used; trainers pass it.
            metric: Value of the metric for `profile_again_at`: a number, or a tensor of one element.

        Raises:
            InputError: The metric is not one number.
        """
        value = None if metric is None else metric_value(metric)
        crossed = value is not None and self._thresholds.crossed(value)
        design = self._design
        is_open = design is not None and design.recorder.is_open
        if not is_open and not self._thresholds.given:
            return
        shared = self._shared("the end of an epoch", MEASURE_AGAIN if crossed else "", reads=is_open)
        if shared is None:
            return
        if design is not None and is_open and shared.interrupted:
            design.restart_window()
        elif design is not None and is_open:
            design.recorder.pause(shared.totals)
        if shared.note:
            logger.info("the metric has crossed a threshold: the power limits are measured again")
            self._begin_profile()

    def end(self) -> None:
        """Release the power limit. Further calls do nothing."""
        if self._ended:
            return
        self._ended = True
        self._design = self._exchange = None
        if not self._begun:
            return
        if self._run is None:
            self._gpus.end()
        else:
            self._gpus.release()

    def _gpus_of(
        self, run_or_agent: Run | AgentConnection | str | Path | None, chosen: Sequence[int | str] | None
    ) -> ProcessGpus:
        if isinstance(run_or_agent, Run):
            if chosen is not None:
                raise UsageError("gpus cannot be given together with a Run; give them to the Run")
            return run_or_agent.gpus
        if run_or_agent is None:
            path = self._variables.get(SOCKET_VARIABLE, "")
        elif isinstance(run_or_agent, AgentConnection):
            path = str(run_or_agent.path)
        elif isinstance(run_or_agent, (str, Path)):
            path = str(run_or_agent)
        else:
            raise UsageError(
                f"run_or_agent is {short_repr(run_or_agent)}; it must be a wattloop.Run, the path of an agent's "
                "socket, or an AgentConnection"
            )
        names = gpu_names(chosen)
        return ProcessGpus(
            path,
            AGENT_START_SECONDS,
            select=lambda offered: gpus_of_process(offered, self._variables, names),
            without_agent=NOT_MEASURED,
        )

    def _check(self) -> None:
        """Find invalid arguments before the training begins."""
        if not callable(getattr(self._selector, "select", None)) or isinstance(self._selector, type):
            raise UsageError(
                f"selector is {short_repr(self._selector)}; it must be an object with a method select, such as "
                "wattloop.power.selectors.MaxSlowdown(1.1)"
            )
        SequentialDesign((200.0, 100.0), 1, self._selector, self._mode, self._requirements)
        trial = [MeasuredLimit(200.0, 200.0, 1.0), MeasuredLimit(100.0, 150.0, 1.5)]
        try:
            chosen = self._selector.select(trial)
        except Exception as error:
            raise UsageError(f"select of {type(self._selector).__name__} failed: {error!r}") from error
        if chosen not in trial:
            raise UsageError(
                f"select of {type(self._selector).__name__} returned {chosen!r}; it must return one of the measurements"
            )

    def _begin(self) -> None:
        if self._begun or self._ended:
            return
        self._begun = True
        group = self._group()
        problem = self._obstacle()
        is_reader = group is None or group.rank == 0
        own = None
        if self._profile_file is not None and self._limits_now and is_reader and not problem and self._gpus.count:
            own = stored_result(self._profile_file, self._limits_now, self._selector)
        ranks = process_rank(self._variables).ranks
        if group is None and ranks > 1 and not _is_of(own, {self._gpus.count}):
            problem = problem or f"this is one of {ranks} processes, {WITHOUT_GROUP}"
        if problem:
            logger.warning("%s: %s", NOT_MEASURED, problem)
        # Without a problem, `begin` of the GPUs has logged that no agent answers.
        self._problem = problem or ("" if self._gpus.count else "no agent answers")
        try:
            name = "" if group is None else f"wattloop/power/{group.next_number('wattloop/power')}"
        except LostStoreError as error:
            logger.warning("%s: the store of the process group is lost: %s", NOT_MEASURED, error)
            return
        self._exchange = TotalsExchange(group, name)
        shared = self._shared("the beginning", "" if own is None else own.as_json(), reads=False)
        if shared is None:
            return
        stored = parsed_result(shared.note, "rank 0") if shared.note else None
        if stored is not None and _is_of(stored, {shared.gpus, shared.gpus / self._exchange.ranks}):
            self.results.append(stored)
            logger.info("power limit %g W, from %s", stored.power_limit_watts, self._profile_file)
            self._gpus.hold(stored.power_limit_watts)
            return
        if stored is not None:
            logger.info("the power limits are measured again: %s is of other GPUs", self._profile_file)
        self._measured_gpus = shared.gpus
        self._begin_profile()

    def _shared(self, moment: str, note: str = "", *, reads: bool = True) -> SharedReading | None:
        """Energy and time of the GPUs of all ranks at this moment, which all come to.

        Args:
            moment: Where in the training this is.
            note: What rank 0 tells the others.
            reads: Whether to read the GPUs.

        Returns:
            None if nothing is measured, or if the ranks can no longer measure together: then no limit is held.
        """
        if self._exchange is None:
            return None
        totals = self._gpus.totals() if reads else None
        held = f" at {self._design.limit_watts:g} W" if reads and self._design is not None else ""
        shared = self._exchange.exchange(
            totals,
            self._gpus.count,
            self._limits_now,
            interrupted=reads and self._gpus.was_interrupted(),
            samples=0.0 if self._design is None else self._design.recorder.samples,
            moment=moment + held,
            uuids=self._gpus.uuids,
            problem=self._problem,
            note=note,
        )
        if shared is None:
            self._exchange = None
            # A choice that all ranks hold stays, and so does a limit that the operator decides.
            if self.measuring:
                logger.warning("power limits are no longer measured, and none is held")
                self._design = None
                self._gpus.release()
        return shared

    @property
    def _limits_now(self) -> tuple[float, ...]:
        """The limits to choose from; empty if none may be held."""
        allowed = self._gpus.allowed_watts
        if allowed is None:
            return ()
        return self._limits_watts or limits_to_measure(*allowed)

    def _obstacle(self) -> str:
        """Connects; returns why no limit can be chosen, or an empty text."""
        if self._run is not None:
            settings = self._run.environment
            if settings.profile_power_limits or settings.power_limit_watts is not None:
                return "the operator decides the power limit of this run"
            if not self._gpus.count:
                return "the run has not begun, or no agent offers it a GPU"
        else:
            if not self._gpus.has_agent:
                return f"{SOCKET_VARIABLE} names no agent"
            answers = self._gpus.begin()
            if not self._gpus.count:
                # `begin` has logged that no agent answers.
                return "the agent offers no GPU" if answers else ""
        return "" if self._gpus.allowed_watts else "no power limit may be held on all GPUs of this process"

    def _begin_profile(self) -> None:
        limits = self._limits_now
        if not limits:
            return
        self._design = SequentialDesign(limits, self._measured_gpus, self._selector, self._mode, self._requirements)
        self._hold(self._design.limit_watts)

    def _hold(self, watts: float) -> None:
        self._gpus.hold(watts)
        # The next reading, to which all ranks come, ends the measurement of all.
        self._problem = self._gpus.refusal

    def _finish(self, own: ProfileResult) -> None:
        exchange = self._exchange
        # Other processors may round otherwise, and selectors may differ: the choice of rank 0 counts.
        shared = self._shared("the result", own.as_json(), reads=False)
        if exchange is None or shared is None:
            return
        result = parsed_result(shared.note, "rank 0")
        self._design = None
        self.results.append(result)
        if result.power_limit_watts != self._gpus.limit_watts:
            self._gpus.hold(result.power_limit_watts)
        logger.info(
            "power limit %g W (%s): another is better by more than %g %% with a probability of %.1f %%",
            result.power_limit_watts,
            result.reason,
            100 * result.margin,
            100 * result.doubt,
        )
        if self._profile_file is not None and exchange.is_first:
            number = len(self.results)
            path = self._profile_file
            numbered = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
            try:
                result.write(numbered)
            except WattloopError as error:
                logger.warning("the power profile was not written: %s", error)


def _is_of(result: ProfileResult | None, numbers: Collection[float]) -> bool:
    """Whether there is a result, and it is of one of these numbers of GPUs."""
    return result is not None and all(each.gpus in numbers for each in result.measurements)


def _limits(given: Sequence[float]) -> tuple[float, ...]:
    """The limits of a script."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise UsageError(f"limits_watts is {short_repr(given)}; it must be a list of watts, such as (400, 300, 200)")
    expected = "a power limit: a positive number of watts"
    limits = tuple(number_between(each, "a value of limits_watts", SMALLEST, math.inf, expected) for each in given)
    if not limits:
        raise UsageError("limits_watts is empty; leave it out to measure the allowed range")
    if len(set(limits)) != len(limits):
        raise UsageError(f"limits_watts has a limit twice: {list(limits)}")
    return limits
