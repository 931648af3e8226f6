"""One training run as the script sees it: which batch size, how many epochs, and when to stop."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

from wattloop.environment import RunEnvironment
from wattloop.gpus import ProcessGpus
from wattloop.messages import MAX_NUMBER, Answer, LimitMeasurement, Report
from wattloop.power.selectors import Measurement, selector_named

logger = logging.getLogger("wattloop")

LAST_REPORT_TIMEOUT_SECONDS = 60.0


class Run:
    """A training run. Inside Wattloop it carries the operator's decision; outside, the defaults given here.

    Args:
        batch_size: The batch size when run by hand.
        max_epochs: The most epochs when run by hand.
        devices: GPUs that share the global batch, for `per_device_batch_size` when run by hand.
        environment: The variables to read; the process's own unless given.

    Raises:
        InputError: A variable of Wattloop's says something that it cannot mean.

    Example:
        >>> with Run(batch_size=32, max_epochs=2, environment={}) as run:
        ...     for epoch in run.epochs():
        ...         run.report(metric=0.5 + epoch / 10)
        >>> run.batch_size, run.completed_epochs
        (32, 2)
    """

    def __init__(
        self,
        *,
        batch_size: int = 32,
        max_epochs: int = 100,
        devices: int = 1,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        # A script that only imports this needs no HTTP client yet.
        from wattloop.reporting import ReportChannel  # noqa: PLC0415

        self.environment = RunEnvironment.read(os.environ if environment is None else environment)
        self.batch_size = self.environment.batch_size or batch_size
        self.per_device_batch_size = self.environment.per_device_batch_size or max(1, self.batch_size // devices)
        self.learning_rate_scale = self.environment.learning_rate_scale
        self.max_epochs = self.environment.max_epochs or max_epochs
        self.completed_epochs = 0
        self.stop_reason = ""
        self._gpus = ProcessGpus(self.environment.agent_socket)
        self._channel = ReportChannel(
            self.environment.report_url, self.environment.token_file, self.environment.certificate_authority_file
        )
        # A process that is started again within its attempt goes on above the numbers of the one before.
        self._sequence = time.time_ns() // 1_000_000
        self._evaluations = 0
        self._reached_in_a_row = 0
        self._metric: float | None = None
        self._samples = 0.0
        self._samples_of_whole_epochs = 0.0
        self._reported_epochs = 0

    def __enter__(self) -> Self:
        self._gpus.begin()
        if self.environment.profile_power_limits:
            self._gpus.begin_profiling()
        elif self.environment.power_limit_watts is not None:
            self._gpus.hold(self.environment.power_limit_watts)
        self._send()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A run that ends by an exception says what it used, but not that it finished.
        report = self._report(finished=kind is None)
        self._gpus.end()
        self._channel.send_last(report, LAST_REPORT_TIMEOUT_SECONDS if kind is None else 0.0)

    @property
    def reached(self) -> bool:
        """Whether the target has been reached by as many evaluations in a row as the job asks for."""
        target = self.environment.target
        return target is not None and self._reached_in_a_row >= target.consecutive_evaluations

    @property
    def stopped(self) -> bool:
        """Whether the operator told this run to stop; `stop_reason` says why."""
        return bool(self.stop_reason)

    @property
    def seed(self) -> int:
        """A number for the training's own random draws: the attempt's, or 0 when run by hand."""
        return self.environment.seed or 0

    @property
    def parameters(self) -> Mapping[str, str]:
        """Further knobs that the job searches over, by name."""
        return self.environment.parameters

    def epochs(self) -> Iterator[int]:
        """Yield the index of each epoch, from 0, until the target is reached, the epochs run out, or told to stop.

        An epoch in which the body reports no metric is reported without one, so that a run too dear is still stopped.
        """
        while self.completed_epochs < self.max_epochs and not self.reached and not self.stopped:
            epoch = self.completed_epochs
            yield epoch
            self.completed_epochs = epoch + 1
            if self._reported_epochs < self.completed_epochs:
                self._samples_of_whole_epochs = self._samples
                self._send()

    def step(self, samples: int | None = None) -> None:
        """Say that an optimizer step is done. It is cheap.

        A run that measures power limits needs to know. A report that the operator asked to have later is sent here too.

        Args:
            samples: How many samples it was made on, where the last batch of an epoch is smaller; default: a whole
                batch.
        """
        counted = float(self.batch_size if samples is None else samples)
        self._samples += counted
        self._gpus.step_done(counted, self._best_limit)
        self._hear(self._channel.send_waiting())

    def report(self, *, metric: float) -> None:
        """Say what the evaluation after this epoch gave, before the body of `epochs` ends.

        Args:
            metric: The target metric.

        Raises:
            ValueError: The metric is not finite; a training that diverged has no result, and says so by ending.
        """
        value = float(metric)
        if not math.isfinite(value):
            raise ValueError(f"the metric is {value}; report a finite number, or end the run where training diverged")
        target = self.environment.target
        # A loss on its way to infinity says no more than the largest number that a report can carry.
        self._metric = min(max(value, -MAX_NUMBER), MAX_NUMBER)
        self._evaluations += 1
        reached = target is not None and target.reached_by(self._metric)
        self._reached_in_a_row = self._reached_in_a_row + 1 if reached else 0
        self._reported_epochs = self.completed_epochs + 1
        self._samples_of_whole_epochs = self._samples
        self._send()

    def _send(self) -> None:
        self._hear(self._channel.send(self._report(finished=False)))

    def _hear(self, answer: Answer | None) -> None:
        if answer is not None and answer.stop and not self.stopped:
            self.stop_reason = answer.reason or "told to stop"
            logger.warning("%s: stopping: %s", self.environment.recurrence, self.stop_reason)

    def _report(self, *, finished: bool) -> Report:
        self._sequence += 1
        epochs = max(self.completed_epochs, self._reported_epochs)
        # A run that breaks off inside an epoch has counted samples that belong to no whole one.
        samples_per_epoch = self._samples_of_whole_epochs / max(epochs, 1)
        return Report(
            sequence=self._sequence,
            epoch=float(epochs),
            metric=self._metric,
            evaluations=self._evaluations,
            reached_in_a_row=self._reached_in_a_row,
            gpus=self._gpus.energy(),
            gpu_product=self._gpus.product,
            max_power_limit_watts=self._gpus.max_power_limit_watts,
            power_limit_watts=self._gpus.limit_watts,
            power_limit_refusal=self._gpus.refusal,
            profile=self._gpus.measurements(samples_per_epoch) if samples_per_epoch else (),
            finished=finished,
            rank=self.environment.rank,
        )

    def _best_limit(self, measurements: tuple[LimitMeasurement, ...]) -> float:
        told = self.environment
        selector = selector_named(told.power_selector, eta=told.eta, max_slowdown_percent=told.max_slowdown_percent)
        per_epoch = [
            Measurement(
                each.power_limit_watts,
                each.energy_joules / each.epochs,
                each.time_seconds / each.epochs,
                self._gpus.count,
            )
            for each in measurements
        ]
        return selector.select(per_epoch).power_limit_watts
