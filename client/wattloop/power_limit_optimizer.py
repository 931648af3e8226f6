"""`PowerLimitOptimizer`: chooses the power limit while a training runs, with or without the operator."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self, SupportsFloat

from wattloop.agent import SOCKET_VARIABLE, AgentConnection
from wattloop.arguments import gpu_names, number_between, shown
from wattloop.errors import UsageError, WattloopError
from wattloop.gpus import ProcessGpus
from wattloop.launcher import process_rank
from wattloop.metric import metric_value
from wattloop.power.profile_result import ProfileResult, profile_result, read_result
from wattloop.power.profiling import limits_to_measure
from wattloop.power.selectors import Cost, Measurement, Selector
from wattloop.power.sequential_design import Mode, Requirements, SequentialDesign
from wattloop.power.thresholds import Thresholds
from wattloop.power.windows import Window, WindowRecorder
from wattloop.process_gpus import gpus_of_process
from wattloop.run import Run

logger = logging.getLogger("wattloop")

# A training by hand does not wait for an agent that restarts: it has nothing to lose but the measurement.
AGENT_START_SECONDS = 0.0
SMALLEST = math.nextafter(0, 1)
NOT_MEASURED = "power limits are not measured"
RANKS_MEASURE_NOTHING = (
    "which would wait for each other's limits; measure with one process, then give all its profile_file"
)


class PowerLimitOptimizer:
    """Measures power limits during training, chooses one, and holds it until the optimizer ends.

    It repeats a limit until the choice is certain or a budget is spent, and corrects for the temperature
    of the GPUs. Without an agent, or if no limit may be held, it logs one warning and does nothing. If the
    process dies, the agent restores the GPUs.

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
            has a result for these limits and as many GPUs, it is used, and nothing is measured: delete it, or
            name another, for another training. So the ranks of one training can hold one limit, too.
        gpus: The GPUs of this process, by index or UUID; default: as for `wattloop.Run`.
        environment: The variables to read; default: the process's environment.

    Attributes:
        results: The result that was read, and that of each completed measurement.

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
    ) -> None:
        self.results: list[ProfileResult] = []
        self._variables = os.environ if environment is None else environment
        self._selector = Cost(0.5) if selector is None else selector
        self._mode = mode
        if requirements is not None and not isinstance(requirements, Requirements):
            raise UsageError(f"requirements is {shown(requirements)}; it must be such as Requirements(margin=0.02)")
        self._requirements = requirements or Requirements()
        self._limits_watts = None if limits_watts is None else _limits(limits_watts)
        self._thresholds = Thresholds(profile_again_at)
        if profile_file is not None and not isinstance(profile_file, (str, Path)):
            raise UsageError(f"profile_file is {shown(profile_file)}; it must be a path")
        self._profile_file = None if profile_file is None else Path(profile_file)
        self._run = run_or_agent if isinstance(run_or_agent, Run) else None
        self._gpus = self._gpus_of(run_or_agent, gpus)
        self._design: SequentialDesign | None = None
        self._recorder: WindowRecorder | None = None
        self._begun = self._ended = False
        self._check()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
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
        recorder = self._recorder
        if recorder is not None and recorder.has_begun:
            totals = self._gpus.totals()
            if totals is None or self._gpus.was_interrupted():
                recorder.restart()
            else:
                recorder.resume(totals)

    def on_step_end(self, samples: float = 1.0) -> None:
        """Count an optimizer step. Most steps read nothing.

        Args:
            samples: Number of samples of the step, if that differs between steps.

        Raises:
            UsageError: `samples` is not positive and finite.
        """
        samples = number_between(samples, "the number of samples", SMALLEST, math.inf, "a positive number")
        self._begin()
        recorder = self._recorder
        if recorder is None or not recorder.step_done(samples):
            return
        totals = self._gpus.totals()
        if totals is None or self._gpus.was_interrupted():
            # The limit may not have been held for a moment.
            recorder.restart()
            return
        window = recorder.add_totals(totals)
        if window is not None:
            self._add(window)

    def on_epoch_end(self, epoch: int | None = None, metric: SupportsFloat | None = None) -> None:  # noqa: ARG002
        """End an epoch: what follows, such as an evaluation, is not measured.

        Args:
            epoch: Not used; trainers pass it.
            metric: Value of the metric for `profile_again_at`: a number, or a tensor of one element.

        Raises:
            InputError: The metric is not one number.
        """
        value = None if metric is None else metric_value(metric)
        recorder = self._recorder
        if recorder is not None and recorder.is_open:
            totals = self._gpus.totals()
            if totals is None:
                recorder.restart()
            else:
                recorder.pause(totals)
        is_alone = process_rank(self._variables).ranks == 1
        if value is not None and self._thresholds.crossed(value) and self._begun and not self._ended and is_alone:
            logger.info("the metric is %g: the power limits are measured again", value)
            self._begin_profile()

    def end(self) -> None:
        """Release the power limit. Further calls do nothing."""
        if self._ended:
            return
        self._ended = True
        self._design = self._recorder = None
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
                f"run_or_agent is {shown(run_or_agent)}; it must be a wattloop.Run, the path of an agent's socket, or "
                "an AgentConnection"
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
                f"selector is {shown(self._selector)}; it must be an object with a method select, such as "
                "wattloop.power.selectors.MaxSlowdown(1.1)"
            )
        SequentialDesign((200.0, 100.0), 1, self._selector, self._mode, self._requirements)
        trial = [Measurement(200.0, 200.0, 1.0), Measurement(100.0, 150.0, 1.5)]
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
        problem = self._obstacle()
        stored = None if problem or not self._gpus.count else self._stored_result()
        ranks = process_rank(self._variables).ranks
        if ranks > 1 and stored is None:
            problem = problem or f"this is one of {ranks} processes, {RANKS_MEASURE_NOTHING}"
        if problem:
            logger.warning("%s: %s", NOT_MEASURED, problem)
        elif stored is not None:
            self.results.append(stored)
            logger.info("power limit %g W, from %s", stored.power_limit_watts, self._profile_file)
            self._gpus.hold(stored.power_limit_watts)
        elif self._gpus.count:
            self._begin_profile()

    def _stored_result(self) -> ProfileResult | None:
        """The result in the profile file for these limits and GPUs, with the selector's choice; None without one."""
        allowed = self._gpus.allowed_watts
        if self._profile_file is None or allowed is None or not self._profile_file.exists():
            return None
        try:
            found = read_result(self._profile_file)
        except WattloopError as error:
            logger.warning("the power limits are measured again: %s", error)
            return None
        limits = self._limits_of(allowed)
        if any(each.gpus != self._gpus.count for each in found.measurements) or {
            each.power_limit_watts for each in found.measurements
        } != set(limits):
            logger.info("the power limits are measured again: %s has others, or other GPUs", self._profile_file)
            return None
        try:
            chosen = self._selector.select([each.measurement for each in found.measurements])
        except Exception as error:  # noqa: BLE001 - a user's selector must not end a long training
            logger.warning("the power limits are measured again: the selector failed: %r", error)
            return None
        return replace(found, power_limit_watts=chosen.power_limit_watts, selector=type(self._selector).__name__)

    def _limits_of(self, allowed: tuple[float, float]) -> tuple[float, ...]:
        return tuple(self._limits_watts) if self._limits_watts else limits_to_measure(*allowed)

    def _obstacle(self) -> str:
        """Connects; returns why no limit can be chosen, or an empty text."""
        problem = self._obstacle_without_run() if self._run is None else self._obstacle_of(self._run)
        if not problem and self._gpus.count and self._gpus.allowed_watts is None:
            problem = "no power limit may be held on all GPUs of this process"
        return problem

    def _obstacle_of(self, run: Run) -> str:
        settings = run.environment
        if settings.profile_power_limits or settings.power_limit_watts is not None:
            return "the operator decides the power limit of this run"
        return "" if self._gpus.count else "the run has not begun, or no agent offers it a GPU"

    def _obstacle_without_run(self) -> str:
        if not self._gpus.has_agent:
            return f"{SOCKET_VARIABLE} names no agent"
        self._gpus.begin()
        # `begin` has logged that no agent answers.
        return "" if self._gpus.count or not self._gpus.has_agent else "the agent offers no GPU"

    def _begin_profile(self) -> None:
        allowed = self._gpus.allowed_watts
        if allowed is None:
            return
        limits = self._limits_of(allowed)
        self._design = SequentialDesign(limits, self._gpus.count, self._selector, self._mode, self._requirements)
        self._hold(self._design.limit_watts)

    def _hold(self, watts: float) -> None:
        self._gpus.hold(watts)
        if self._gpus.refusal:
            # `hold` has logged why.
            self._stop_measuring()
        elif self._design is not None:
            self._recorder = WindowRecorder(watts)

    def _stop_measuring(self) -> None:
        self._design = self._recorder = None

    def _add(self, window: Window) -> None:
        design = self._design
        if design is None:
            return
        try:
            design.add(window)
        except Exception as error:  # noqa: BLE001 - a user's selector must not end a long training
            logger.warning("power limits are no longer measured, and none is held: the selector failed: %r", error)
            self._stop_measuring()
            self._gpus.release()
            return
        watts = design.limit_watts
        if design.reason is not None and design.choice is not None:
            self._finish(profile_result(design, design.choice, design.reason))
        if watts != window.power_limit_watts:
            self._hold(watts)
        elif self._design is not None:
            self._recorder = WindowRecorder(watts)

    def _finish(self, result: ProfileResult) -> None:
        self._stop_measuring()
        self.results.append(result)
        logger.info(
            "power limit %g W (%s): another is better by more than %g %% with a probability of %.1f %%",
            result.power_limit_watts,
            result.reason,
            100 * result.margin,
            100 * result.doubt,
        )
        if self._profile_file is not None:
            number = len(self.results)
            path = self._profile_file
            numbered = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
            try:
                result.write(numbered)
            except WattloopError as error:
                logger.warning("the power profile was not written: %s", error)


def _limits(given: Sequence[float]) -> tuple[float, ...]:
    """The limits of a script.

    Raises:
        UsageError: They are no list of different power limits.
    """
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise UsageError(f"limits_watts is {shown(given)}; it must be a list of watts, such as (400, 300, 200)")
    expected = "a power limit: a positive number of watts"
    limits = tuple(number_between(each, "a value of limits_watts", SMALLEST, math.inf, expected) for each in given)
    if not limits:
        raise UsageError("limits_watts is empty; leave it out to measure the allowed range")
    if len(set(limits)) != len(limits):
        raise UsageError(f"limits_watts has a limit twice: {list(limits)}")
    return limits
