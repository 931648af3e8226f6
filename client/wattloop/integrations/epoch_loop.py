"""Drives the epochs of a run from the callbacks of a framework that has the training loop itself.

It makes the calls that a script makes in `for epoch in run.epochs()`, so a training in a framework
reports and stops exactly as a plain loop does. The run begins and ends with the training, unless the script
does so itself (`RunScope`).
"""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from wattloop.arguments import metric_named
from wattloop.errors import InputError, UsageError
from wattloop.printable import short_repr
from wattloop.run.training_run import Run


class RunScope:
    """The time of a run's training.

    Args:
        run: The run. If it has not begun, the scope begins it and ends it.

    Raises:
        UsageError: It is no run.
    """

    def __init__(self, run: Run) -> None:
        self._run = checked_run(run)
        self._owns_run = False

    def begin(self) -> None:
        """The training begins.

        Raises:
            UsageError: The run has been used for a training before.
        """
        self._owns_run = not self._run.active
        if self._owns_run:
            self._run.__enter__()
            # A framework without an event for exceptions never calls `end` then.
            atexit.register(self._abandon)

    def end(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        """The training ends, by an exception if one is given."""
        if self._owns_run and self._run.active:
            atexit.unregister(self._abandon)
            self._run.__exit__(kind, error, traceback)

    def _abandon(self) -> None:
        error = SystemExit("the process ended before the training")
        self.end(type(error), error)


def checked_run(run: object) -> Run:
    """The argument, which a script may have confused with another.

    Raises:
        UsageError: It is no run.
    """
    if not isinstance(run, Run):
        raise UsageError(f"run is {short_repr(run)}; it must be a wattloop.Run: run = wattloop.Run()")
    return run


def metric_names(run: Run, metric: str | None, prefix: str = "") -> tuple[str, ...]:
    """The names under which a framework may have the metric, the best first.

    Args:
        run: The run, whose target names the metric.
        metric: Another name; outside Wattloop the default is `loss`.
        prefix: Prefix of the framework's metrics of an evaluation, such as ``val_``.

    Raises:
        UsageError: `run` is no run, or the name no string.
    """
    checked_run(run)
    if metric is not None and not isinstance(metric, str):
        raise UsageError(f"metric is {short_repr(metric)}; it must be the name of a metric, such as 'accuracy'")
    target = run.environment.target
    name = metric or ("loss" if target is None else target.metric)
    return tuple(dict.fromkeys((f"{prefix}{name}", name)))


class EpochLoop:
    """The loop over `run.epochs()`, one call for each of its events.

    Args:
        run: The run. If it has not begun, the loop begins it and ends it.
        metric: Name of the metric to report; default: that of the job's target, or else `loss`.
        prefix: Prefix of the framework's metrics of an evaluation, such as ``eval_``. A metric with it
            is preferred to one without.
        source: Place of the metrics, for errors.
    """

    def __init__(self, run: Run, metric: str | None, *, prefix: str, source: str) -> None:
        self.run = run
        self.names = metric_names(run, metric, prefix)
        self._scope = RunScope(run)
        self._source = source
        self._epochs: Iterator[int] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the training has begun and not ended."""
        return self._epochs is not None

    def begin(self) -> None:
        """The training begins.

        Raises:
            UsageError: The run has been used for a training before.
        """
        self._scope.begin()
        self._epochs = self.run.epochs()
        next(self._epochs, None)

    def report(self, metrics: Mapping[str, Any]) -> None:
        """Report the evaluation of this epoch.

        Raises:
            InputError: The metrics do not have the metric, or it is not one number. The training ends.
        """
        try:
            value = metric_named(metrics, self.names, self._source)
        except InputError as error:
            self.end(type(error), error)
            raise
        self.run.report(metric=value)

    def end_epoch(self) -> bool:
        """The epoch ends, its evaluation included. Returns whether the training must end."""
        return self._epochs is None or next(self._epochs, None) is None

    def end(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        """The training ends, by an exception if one is given."""
        self._epochs = None
        self._scope.end(kind, error, traceback)
