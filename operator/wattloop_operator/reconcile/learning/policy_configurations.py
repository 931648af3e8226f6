"""The configurations of a job, in the form that policies use: a batch size with a value of each parameter."""

from __future__ import annotations

from collections.abc import Iterable

from wattloop_operator.api.recurring_training_job import RecurringTrainingJobSpec
from wattloop_planner.bandit.configuration import Configuration, Parameter


def parameters_of(spec: RecurringTrainingJobSpec) -> tuple[Parameter, ...]:
    """The further parameters of a job."""
    return tuple(Parameter(each.name, each.candidates, each.default) for each in spec.parameters)


def default_values(spec: RecurringTrainingJobSpec) -> dict[str, str]:
    """Default of each further parameter."""
    return {each.name: each.default for each in spec.parameters}


def default_configuration(spec: RecurringTrainingJobSpec) -> Configuration:
    """The configuration that runs first, and that savings are relative to."""
    return Configuration(spec.batch_size.default, tuple(default_values(spec).items()))


def configuration_of(
    spec: RecurringTrainingJobSpec, batch_size: int, values: Iterable[tuple[str, str]]
) -> Configuration | None:
    """The configuration of an attempt, with the parameters in the order of the job.

    Args:
        spec: The job's present spec.
        batch_size: Batch size of the attempt.
        values: Its values of further parameters; one without a value had its default.

    Returns:
        None if the job no longer has one of the parameters.
    """
    given = dict(values)
    defaults = default_values(spec)
    if not given.keys() <= defaults.keys():
        return None
    return Configuration(batch_size, tuple((name, given.get(name, default)) for name, default in defaults.items()))
