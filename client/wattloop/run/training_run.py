"""A training run for the script: its batch size, its epochs, and when to stop."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self, SupportsFloat

from wattloop.arguments import gpu_names, metric_value, number_between, whole_number
from wattloop.errors import UsageError
from wattloop.wire.environment import RunEnvironment

# The other modules are imported where they are used first, since a training script imports this one before it
# does anything: they take three times as long.
if TYPE_CHECKING:
    from wattloop.run.experiment_tags import ExperimentTags
    from wattloop.run.limit_choice import LimitChoice
    from wattloop.run.publishing import MarkerStore, RunOutput
    from wattloop.wire.training_messages import ProbeReport, PublishedModel, Report

logger = logging.getLogger("wattloop")

LAST_REPORT_TIMEOUT_SECONDS = 60.0
MAX_SAMPLES = 1e15


class Run:
    """A training run. Inside Wattloop it has the operator's settings, outside Wattloop these defaults.

    Args:
        batch_size: The global batch size outside Wattloop; rounded down to a multiple of `devices`, to one
            sample for each at least.
        max_epochs: The maximum number of epochs outside Wattloop.
        devices: Number of GPUs that share the global batch, for `per_device_batch_size` outside Wattloop.
        gpus: The GPUs that this process uses, by index or UUID; default: those of
            ``CUDA_VISIBLE_DEVICES``, of which a local rank uses one.
        environment: The variables to read; default: the process's environment.
        marker_store: Writes the marker of the published model, if `spec.output.directory` is a URL.

    Attributes:
        gpus: The GPUs of this process: their energy and the power limit held on them.

    Raises:
        InputError: A variable of Wattloop has an invalid value.
        UsageError: A number is not a positive whole number, or `gpus` is not a list; or the agent does not offer
            one of `gpus`, at the begin of the run.

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
        gpus: Sequence[int | str] | None = None,
        environment: Mapping[str, str] | None = None,
        marker_store: MarkerStore | None = None,
    ) -> None:
        from wattloop.gpus.process_gpus import gpus_of_process  # noqa: PLC0415
        from wattloop.run.held_gpus import ProcessGpus  # noqa: PLC0415
        from wattloop.run.micro_batches import micro_batches  # noqa: PLC0415
        from wattloop.run.report_channel import Heartbeat, ReportChannel  # noqa: PLC0415
        from wattloop.run.training_progress import TrainingProgress  # noqa: PLC0415
        from wattloop.run.verdicts import RankVerdicts, StopDecision  # noqa: PLC0415

        variables = os.environ if environment is None else environment
        chosen = gpu_names(gpus)
        self.environment = _with_group(RunEnvironment.read(variables))
        parts = micro_batches(batch_size, devices)
        self.batch_size = self.environment.batch_size or parts.global_batch_size
        self.per_device_batch_size = self.environment.per_device_batch_size or parts.batch_size
        self.learning_rate_scale = self.environment.learning_rate_scale
        self.max_epochs = self.environment.max_epochs or whole_number(max_epochs, "max_epochs")
        self.gpus = ProcessGpus(
            self.environment.agent_socket, select=lambda offered: gpus_of_process(offered, variables, chosen)
        )
        self._channel = ReportChannel(
            self.environment.report_url,
            self.environment.token_file,
            self.environment.certificate_authority_file,
            termination_message_path=self.environment.termination_message_path,
        )
        # With one rank, and outside Wattloop, this process alone decides when it ends.
        several = self.environment.managed and self.environment.ranks > 1
        rank, ranks = self.environment.rank, self.environment.ranks
        self._verdicts = RankVerdicts(self._channel, rank, ranks) if several else None
        self._progress = TrainingProgress(self.environment.target)
        self._decision = StopDecision(self.environment.recurrence, self._progress, self._verdicts)
        self._limit_choice: LimitChoice | None = None
        self._output: RunOutput | None = None
        if self.environment.profile_power_limits:
            from wattloop.run.limit_choice import LimitChoice  # noqa: PLC0415 - most runs measure no limits

            self._limit_choice = LimitChoice(self.environment, self.gpus, self._verdicts)
        if self.environment.output_directory:
            from wattloop.run.publishing import RunOutput  # noqa: PLC0415 - most runs have no spec.output

            self._output = RunOutput(self.environment, marker_store)
        self._published: PublishedModel | None = None
        self._decided_batch_size = self.batch_size
        self._probed: ProbeReport | None = None
        self._heartbeat = Heartbeat(self.environment.progress_deadline_seconds)
        self._experiments: ExperimentTags | None = None
        # No clock orders reports: the operator orders processes by their first ones.
        self._process = os.urandom(8).hex()
        self._sequence = 0
        self._in_epochs = False
        self._began = self._ended = False

    def __enter__(self) -> Self:
        if self._began:
            raise UsageError("this run has begun before; make another wattloop.Run for another training")
        self._began = True
        self.gpus.begin()
        if self._limit_choice is not None:
            self._limit_choice.begin()
        elif self.environment.power_limit_watts is not None:
            self.gpus.hold(self.environment.power_limit_watts)
        if self._output is not None:
            self._output.create()
        self._send()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended = True
        if kind is None:
            self._publish()
        # A run that ends by an exception reports its energy and that it failed, but not that it finished.
        report = self._report(finished=kind is None, error=error)
        self.gpus.end()
        self._tag_experiments(report, last=True)
        self._channel.send_last(report, LAST_REPORT_TIMEOUT_SECONDS if kind is None else 0.0)

    @property
    def active(self) -> bool:
        """Whether the run has begun and not ended."""
        return self._began and not self._ended

    @property
    def completed_epochs(self) -> int:
        """Number of epochs that the loop has completed."""
        return self._progress.completed_epochs

    @property
    def reached(self) -> bool:
        """Whether enough consecutive evaluations have reached the target, whatever was reported since.

        With several ranks, this and `stopped` change for all of them after the same epoch.
        """
        return self._decision.reached

    @property
    def stopped(self) -> bool:
        """Whether the operator stopped this run; `stop_reason` gives the reason."""
        return self._decision.stopped

    @property
    def stop_reason(self) -> str:
        """Why the operator stopped this run; empty if it did not."""
        return self._decision.stop_reason

    @property
    def output_dir(self) -> str:
        """Folder or URL for the files of this attempt; empty without `spec.output`.

        What it holds when the block ends becomes the current model if the target was reached.
        """
        return "" if self._output is None else self._output.location

    @property
    def warm_start_dir(self) -> str:
        """Folder or URL of the model to begin with; empty to begin without one.

        It is found once, so that a model that is published during the run changes nothing. Read it before the
        training begins.
        """
        return "" if self._output is None else self._output.warm_start_location

    @property
    def seed(self) -> int:
        """Seed for the training's random numbers: the attempt's, or 0 outside Wattloop."""
        return self.environment.seed or 0

    @property
    def parameters(self) -> Mapping[str, str]:
        """Further hyperparameters that the job searches over, by name."""
        return self.environment.parameters

    def record_probes(self, probed: ProbeReport, batch_size: int) -> None:
        """Report what probes have cost and chosen so far.

        Args:
            probed: All trials of this process.
            batch_size: The global batch size of the steps that follow.
        """
        self._probed = probed
        self.per_device_batch_size = max(batch_size * self.per_device_batch_size // self.batch_size, 1)
        self.batch_size = batch_size
        self._send()

    def epochs(self) -> Iterator[int]:
        """Yield the index of each epoch, from 0, until the target, the last epoch, or a stop by the operator.

        If the body reports no metric, the epoch is reported without one, so that the operator can still
        stop a run that is too expensive. Several ranks end after the same epoch: each waits for the
        verdict on the epoch, which rank 0 decides with the operator.

        Raises:
            UsageError: The run has not begun, or has ended.
        """
        self._require_active()
        self._in_epochs = True
        while self.completed_epochs < self.max_epochs and not self.reached and not self.stopped:
            yield self.completed_epochs
            self._complete_epoch()
        self._in_epochs = False
        self._progress.loop_ended = True

    def step(self, samples: float | None = None) -> None:
        """Count an optimizer step. This is cheap.

        The measurement of power limits needs it. It also sends a report that the operator asked to
        receive later, and one that shows progress when a quarter of `progressDeadlineSeconds` has passed
        without a report.

        Args:
            samples: Number of samples of the step; default: a full batch. Pass it if the last batch of
                an epoch is smaller.

        Raises:
            UsageError: `samples` is no finite number, or negative.
        """
        if samples is not None:
            samples = number_between(
                samples, "the number of samples of a step", 0, MAX_SAMPLES, "a number of at least 0"
            )
        counted = float(self.batch_size if samples is None else samples)
        self._progress.step(counted)
        if self._limit_choice is not None:
            self._limit_choice.step_done(counted)
        self.keep_alive()
        self._decision.answered(self._channel.send_delayed())

    def keep_alive(self) -> None:
        """Show progress in work that is no step: `step` calls it, too.

        It sends a report when a quarter of `progressDeadlineSeconds` has passed without one.
        """
        if self._heartbeat.is_due():
            self._send()

    def report(self, *, metric: SupportsFloat) -> None:
        """Report the result of an evaluation, before the body of the epoch ends.

        A report after the loop of `epochs` counts as no further epoch. The last report gives the final
        metric, which `objective.target.tolerance` compares between batch sizes.

        Args:
            metric: The target metric: a number, or a tensor of one element. NaN or an infinity reports
                that the training diverged, and the operator stops the run.

        Raises:
            InputError: The metric is not one number.
            UsageError: The run has not begun, or has ended.
        """
        self._require_active()
        value = metric_value(metric)
        self._progress.evaluate(value)
        if self._progress.diverged:
            logger.warning("%s: the metric is %s: the training has diverged", self.environment.recurrence, value)
        self._send()
        if not self._in_epochs and not self._progress.loop_ended:
            # In a loop without epochs(), all ranks end after the same evaluation.
            self._agree()

    def _require_active(self) -> None:
        if not self.active:
            problem = "has ended; make another wattloop.Run for another training" if self._ended else "has not begun"
            raise UsageError(f"this run {problem}: write `with run:` around the training and its reports")

    def _complete_epoch(self) -> None:
        """Report an epoch that the script did not report, and agree with the other ranks whether to go on."""
        is_new = self._progress.complete_epoch()
        if self._limit_choice is not None:
            self._limit_choice.epoch_ended()
        if is_new and (self._verdicts is None or not self._verdicts.asks_operator):
            self._send()
        self._agree()

    def _agree(self) -> None:
        answer = self._decision.agree(self._question, is_last=self.completed_epochs >= self.max_epochs)
        if answer is None or self._limit_choice is None:
            return
        epoch = self._decision.agreed_epochs
        if answer.limit_schedule is not None and answer.limit_schedule.after_epoch == epoch:
            self._limit_choice.follow(answer.limit_schedule)
        if answer.choice_epoch is not None and answer.choice_epoch <= epoch:
            self._limit_choice.choose_from_all_ranks(answer.profile, answer.profile_gpus)

    def _question(self, epoch: int, epochs_ahead: int) -> Report:
        """The report that asks for the verdict on an epoch and some further ones."""
        self._heartbeat.reported()
        schedule = None if self._limit_choice is None else self._limit_choice.proposed_schedule(epoch)
        report = self._report(finished=False)
        return replace(report, verdict_epoch=epoch, epochs_ahead=epochs_ahead, limit_schedule=schedule)

    def _send(self) -> None:
        self._heartbeat.reported()
        report = self._report(finished=False)
        self._tag_experiments(report)
        self._decision.answered(self._channel.send(report))

    def _tag_experiments(self, report: Report, *, last: bool = False) -> None:
        tracks = "mlflow" in sys.modules or "wandb" in sys.modules
        if not tracks or not self.environment.managed or self.environment.rank:
            return
        if self._experiments is None:
            # Imported here because few scripts use a tracker.
            from wattloop.run.experiment_tags import ExperimentTags  # noqa: PLC0415

            self._experiments = ExperimentTags(self.environment)
        self._experiments.update(report, last=last)

    def _publish(self) -> None:
        """Publish the model of a run whose target the operator holds to be reached."""
        if self._output is None or self.environment.rank != 0 or not self.reached:
            return
        if not self._decision.reach_confirmed:
            last = self._channel.send_last(self._report(finished=False), LAST_REPORT_TIMEOUT_SECONDS)
            self._decision.answered(last)
        if not self._decision.reach_confirmed:
            name = self.environment.recurrence
            logger.warning("%s: not published: the operator has not confirmed that the target is reached", name)
            return
        facts = {
            "batch_size": self.batch_size,
            "parameters": dict(self.parameters),
            "metric": self._progress.metric,
            "epochs": self._progress.epochs,
        }
        self._published = self._output.publish(facts, self.keep_alive)

    def _report(self, *, finished: bool, error: BaseException | None = None) -> Report:
        from wattloop.run.training_progress import failure_name, is_consequence  # noqa: PLC0415
        from wattloop.wire.training_messages import MAX_BATCH_SIZE, MAX_RANKS, Report  # noqa: PLC0415

        self._sequence += 1
        progress, choice, samples_per_epoch = self._progress, self._limit_choice, self._progress.samples_per_epoch
        return Report(
            process=self._process,
            sequence=self._sequence,
            epoch=float(progress.epochs),
            metric=progress.metric,
            diverged=progress.diverged,
            evaluations=progress.evaluations,
            consecutive_reached=progress.consecutive_reached,
            gpus=self.gpus.energy(),
            gpu_product=self.gpus.product,
            max_power_limit_watts=self.gpus.max_power_limit_watts,
            power_limit_watts=self.gpus.limit_watts,
            power_limit_refusal=self.gpus.refusal,
            profile=choice.measurements(samples_per_epoch) if choice is not None and samples_per_epoch else (),
            published=self._published,
            finished=finished,
            rank=self.environment.rank,
            ranks=min(self.environment.ranks, MAX_RANKS),
            profile_ranks=1 if choice is None else min(choice.ranks, MAX_RANKS),
            batch_size=min(self._decided_batch_size, MAX_BATCH_SIZE),
            probes=self._probed if self.environment.rank == 0 else None,
            failure="" if error is None else failure_name(error),
            consequence=error is not None and is_consequence(error),
        )


def _with_group(environment: RunEnvironment) -> RunEnvironment:
    """The settings with rank and number of ranks from PyTorch, if the launcher did not set them."""
    from wattloop.wire.torch_group import torch_group  # noqa: PLC0415

    group = torch_group() if environment.managed and environment.ranks == 1 else None
    return environment if group is None else replace(environment, rank=group.rank, ranks=group.size)
