"""From a job as asked for to what is simulated: its traces read and looked up, its history read, a task a seed."""

from __future__ import annotations

from functools import cache

from wattloop_planner.simulation.history_file import known_before, read_history
from wattloop_planner.simulation.job import check_default, job_trace
from wattloop_planner.simulation.options import JobOptions
from wattloop_planner.simulation.runner import Task
from wattloop_planner.simulation.simulator import Scenario
from wattloop_planner.simulation.traces import Workload, read_power_trace, read_train_trace


class TraceFiles:
    """The files that jobs name, each read once."""

    def __init__(self) -> None:
        self.train = cache(read_train_trace)
        self.power = cache(read_power_trace)
        self.history = cache(read_history)


def tasks_of(options: JobOptions, files: TraceFiles) -> list[Task]:
    """One task a seed of a job.

    Args:
        options: The job as asked for.
        files: Where its files are read.

    Raises:
        InputError: A file is no trace, or does not have the job.
        UsageError: The default batch size is not offered.
    """
    train, power = files.train(options.train), files.power(options.power)
    switched = () if options.switch_target_metric is None else (options.switch_target_metric,)
    trace = job_trace(
        train,
        power,
        workload=Workload(options.dataset, options.network, options.optimizer),
        targets=(options.target_metric, *switched),
        eta=options.eta,
        max_epochs=options.max_epochs,
    )
    check_default(trace, options.default_batch_size, train, power)
    scenario = Scenario(
        job=options.job,
        gpu=options.gpu,
        trace=trace,
        target_metric=options.target_metric,
        max_epochs=options.max_epochs,
        default_batch_size=options.default_batch_size,
        recurrences=options.recurrences or trace.automatic_recurrences,
        stop=options.stop,
        switch_at=options.switch_at,
        switch_target_metric=options.switch_target_metric,
    )
    if options.history is None:
        return [Task(options, scenario, seed) for seed in options.seeds]
    rows = files.history(options.history)
    return [Task(options, scenario, seed, known_before(rows, options, seed)) for seed in options.seeds]
