"""Hugging Face's Accelerate: a tracker that reports what the script logs.

Accelerate has no event that ends a training, so the script's own loop is over `run.epochs()`.
"""

from __future__ import annotations

from typing import Any

from accelerate.tracking import GeneralTracker

from wattloop.arguments import metric_named
from wattloop.integrations.epoch_loop import RunScope, metric_names
from wattloop.run.training_run import Run

# A script may log the metric after its second epoch for the first time, if it evaluates every other one.
EPOCHS_WITHOUT_METRIC = 2


class WattloopTracker(GeneralTracker):  # type: ignore[misc,unused-ignore]
    """Begins the run with `accelerator.init_trackers`, and ends it with `accelerator.end_training`.

    `accelerator.log` reports the metric where the logged values have it. Call it in each process with
    the same gathered value, so that all agree on the target.

    Args:
        run: The run. If it has not begun, the tracker begins it and ends it.
        metric: Name of the metric that the script logs; default: that of the job's target, or outside
            Wattloop ``loss``.

    Raises:
        InputError: The logged metric is not one number, or two epochs have ended without it.
        UsageError: `run` is no run, has been used before, or `metric` is no name.
    """

    name = "wattloop"
    requires_logging_directory = False
    # Each process has a run of its own, which reports its GPUs' energy.
    main_process_only = False

    def __init__(self, run: Run, metric: str | None = None) -> None:
        super().__init__()
        self._run = run
        self._names = metric_names(run, metric)
        self._scope = RunScope(run)
        self._has_reported = False
        self._logged: dict[str, Any] = {}

    @property
    def tracker(self) -> Run:
        """See `GeneralTracker`: the run."""
        return self._run

    def start(self) -> None:
        """See `GeneralTracker`: begin the run."""
        self._scope.begin()

    def log(self, values: dict[str, Any], step: int | None = None, **others: object) -> None:
        """See `GeneralTracker`: report the metric, if the values have it."""
        if any(name in values for name in self._names):
            self._run.report(metric=metric_named(values, self._names, "accelerator.log"))
            self._has_reported = True
            return
        if not self._has_reported:
            self._logged |= values
            if self._run.completed_epochs >= EPOCHS_WITHOUT_METRIC:
                # Raises the error that names what was logged.
                metric_named(self._logged, self._names, "accelerator.log")

    def finish(self) -> None:
        """See `GeneralTracker`: end the run."""
        self._scope.end()
