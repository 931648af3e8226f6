"""Tags the runs of MLflow and Weights & Biases that the script itself uses, if it has imported them."""

import logging
import sys
from collections.abc import Mapping
from typing import Any

from wattloop.energy.cost import CostModel
from wattloop.threads import TaskThread
from wattloop.wire.environment import RunEnvironment
from wattloop.wire.training_messages import Report, holds_chosen_limit

logger = logging.getLogger("wattloop")

# A server of MLflow that does not answer keeps a thread of its own waiting, and no training longer than this.
LAST_UPDATE_SECONDS = 10.0


def tags_of(environment: RunEnvironment, report: Report) -> dict[str, str | int | float]:
    """What is known of an attempt, by the names of its tags.

    Energy, time and cost are there once a report has readings of all GPUs. With several processes
    they are not, since a process knows those of its own GPUs alone.

    Example:
        >>> tags_of(RunEnvironment(job="team/digits", recurrence="digits-7-0", batch_size=64), Report("4f1d", 1, 0))
        {'job': 'team/digits', 'recurrence': 'digits-7-0', 'attempt': 0, 'batch_size': 64}
    """
    tags: dict[str, str | int | float] = {"job": environment.job, "recurrence": environment.recurrence}
    # The name of a recurrence ends with the number of its attempt.
    attempt = environment.recurrence.rpartition("-")[2]
    if attempt.isascii() and attempt.isdecimal():
        tags["attempt"] = int(attempt)
    if environment.batch_size is not None:
        tags["batch_size"] = environment.batch_size
    measured = (each.power_limit_watts for each in report.profile)
    is_measuring = environment.profile_power_limits and not holds_chosen_limit(report.power_limit_watts, measured)
    if report.power_limit_watts is not None and not is_measuring:
        tags["power_limit_watts"] = report.power_limit_watts
    if report.gpus and environment.ranks <= 1:
        energy = sum(gpu.energy_millijoules - gpu.start_energy_millijoules for gpu in report.gpus) / 1000
        seconds = max(gpu.time_seconds - gpu.start_time_seconds for gpu in report.gpus)
        tags |= {"energy_joules": round(energy, 3), "time_seconds": round(seconds, 3)}
        if report.max_power_limit_watts:
            model = CostModel(environment.eta, report.max_power_limit_watts)
            tags["cost_joules"] = round(model.cost_joules(energy, seconds), 3)
    return tags


class ExperimentTags:
    """The tags of one run of each tracker: the first that is active while the training reports."""

    def __init__(self, environment: RunEnvironment) -> None:
        self._environment = environment
        self._failed: set[str] = set()
        self._mlflow_run_id: str | None = None
        self._mlflow_update: TaskThread | None = None
        self._wandb_run: Any = None

    def update(self, report: Report, *, last: bool = False) -> None:
        """Tag the active runs; the last time it waits for a slow server, for a bounded time."""
        tags = tags_of(self._environment, report)
        for tracker, tag in (("mlflow", self._tag_mlflow), ("wandb", self._tag_wandb)):
            module = sys.modules.get(tracker)
            if module is not None and tracker not in self._failed:
                try:
                    tag(module, tags, last)
                except Exception as error:  # noqa: BLE001  whatever a tracker raises, the training goes on
                    self._fail(tracker, error)

    def _fail(self, tracker: str, error: Exception) -> None:
        self._failed.add(tracker)
        logger.warning("%s: no more tags for %s: %s", self._environment.recurrence, tracker, error)

    def _tag_mlflow(self, mlflow: Any, tags: Mapping[str, str | int | float], last: bool) -> None:
        if self._mlflow_run_id is None:
            active = mlflow.active_run()
            if active is None:
                return
            self._mlflow_run_id = active.info.run_id
        running = self._mlflow_update
        if running is not None and running.is_alive():
            if not last:
                # The next update contains this one.
                return
            running.join(LAST_UPDATE_SECONDS)
        named = [mlflow.entities.RunTag(f"wattloop.{name}", str(value)) for name, value in tags.items()]
        # By id, so that a run that the script ended before the training is complete too.
        run_id, client = self._mlflow_run_id, mlflow.MlflowClient()

        def send() -> None:
            try:
                client.log_batch(run_id, tags=named)
            except Exception as error:  # noqa: BLE001  as above
                self._fail("mlflow", error)

        self._mlflow_update = TaskThread(send, "wattloop-mlflow")
        self._mlflow_update.start()
        if last:
            self._mlflow_update.join(LAST_UPDATE_SECONDS)

    def _tag_wandb(self, wandb: Any, tags: Mapping[str, str | int | float], _last: bool) -> None:
        active = wandb.run
        if active is None or (self._wandb_run is not None and active is not self._wandb_run):
            return
        self._wandb_run = active
        # Settings are in the configuration of a run, and results in its summary; W&B sends both by itself.
        settings = {name: value for name, value in tags.items() if not name.endswith(("_joules", "_seconds"))}
        active.config.update({f"wattloop.{name}": value for name, value in settings.items()}, allow_val_change=True)
        results = {f"wattloop.{name}": value for name, value in tags.items() if name not in settings}
        if results:
            active.summary.update(results)
