"""Begins and ends a run with a training of a framework, unless the script does so itself."""

from __future__ import annotations

import atexit
from types import TracebackType

from wattloop.arguments import shown
from wattloop.errors import UsageError
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
        raise UsageError(f"run is {shown(run)}; it must be a wattloop.Run: run = wattloop.Run()")
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
        raise UsageError(f"metric is {shown(metric)}; it must be the name of a metric, such as 'accuracy'")
    target = run.environment.target
    name = metric or ("loss" if target is None else target.metric)
    return tuple(dict.fromkeys((f"{prefix}{name}", name)))
