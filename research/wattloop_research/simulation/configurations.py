"""The configurations of a simulated job: which training paths and epochs belong to each."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wattloop.errors import InputError, UsageError
from wattloop.power.selectors import MeasuredLimit
from wattloop_planner.bandit.configuration import Configuration, Parameter, Scale, scale_of
from wattloop_planner.metric_curve import MetricCurve
from wattloop_planner.observations import PARAMETER_PREFIX
from wattloop_research.simulation.traces import LEARNING_RATE, TrainingPath

Curves = dict[Configuration, dict[int, MetricCurve]]


@dataclass(frozen=True)
class ParameterOption:
    """A parameter that the policy chooses, as given in ``--parameters``."""

    name: str
    default: str


def parameter_options(text: str) -> tuple[ParameterOption, ...]:
    """Parse ``name=default``, separated by commas.

    Raises:
        ValueError: The text is malformed, or a name occurs twice.

    Example:
        >>> parameter_options("learning_rate=0.1, optimizer=adam")[1]
        ParameterOption(name='optimizer', default='adam')
    """
    found = []
    for part in text.split(","):
        name, equals, default = part.strip().partition("=")
        if not (name and equals and default):
            raise ValueError
        found.append(ParameterOption(name, default))
    if len({option.name for option in found}) < len(found):
        raise ValueError
    return tuple(found)


def parameters_of_paths(
    source: str, options: Sequence[ParameterOption], paths: Iterable[TrainingPath]
) -> tuple[Parameter, ...]:
    """The parameters that a job chooses, with the values in the train file as candidates.

    Raises:
        InputError: A parameter has no column, or one that is not chosen has several values.
        UsageError: A default is not in the file, or a value is there in two notations.
    """
    values: dict[str, dict[str, int]] = {}
    for path in paths:
        for name, value in path.parameters:
            values.setdefault(name, {}).setdefault(value, path.line)
    for name, lines in values.items():
        if name != LEARNING_RATE and len(lines) > 1 and name not in {option.name for option in options}:
            found = f"{len(lines)} values of parameter {name}"
            expected = f"one value, or --parameters {name}=DEFAULT, so that the policy chooses it"
            raise InputError(source, found, expected, max(lines.values()), f"{PARAMETER_PREFIX}{name}")
    return tuple(_parameter(source, option, list(values.get(option.name, {}))) for option in options)


def _parameter(source: str, option: ParameterOption, candidates: list[str]) -> Parameter:
    if not candidates:
        column = f"{PARAMETER_PREFIX}{option.name}"
        raise InputError(source, "no such column", f"a column {column} with the values to choose from", 1, column)
    if scale_of(candidates) is not Scale.CHOICE:
        candidates = sorted(candidates, key=_number)
    default = next((each for each in candidates if each == option.default or _equal(each, option.default)), None)
    if default is None:
        raise UsageError(
            f"--parameters: found default {option.default} of {option.name}, expected one of {', '.join(candidates)}, "
            f"the values in {source}"
        )
    try:
        return Parameter(option.name, tuple(candidates), default)
    except ValueError as error:
        raise UsageError(f"--parameters: {error}; the values are from {source}") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _equal(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return False


def paths_by_configuration(
    paths: Mapping[int, tuple[TrainingPath, ...]], parameters: Sequence[Parameter]
) -> dict[Configuration, tuple[TrainingPath, ...]]:
    """The training paths of each configuration, in the order of the file's runs.

    Args:
        paths: The training paths by batch size.
        parameters: The parameters that the job chooses; others are ignored.
    """
    found: dict[Configuration, list[TrainingPath]] = {}
    for size, of_size in paths.items():
        for path in of_size:
            given = dict(path.parameters)
            values = tuple((each.name, given.get(each.name, each.default)) for each in parameters)
            found.setdefault(Configuration(size, values), []).append(path)
    return {configuration: tuple(of_configuration) for configuration, of_configuration in found.items()}


def epochs_of(
    epochs: Mapping[Configuration, tuple[MeasuredLimit, ...]], configuration: Configuration
) -> tuple[MeasuredLimit, ...] | None:
    """The epochs at each power limit of a configuration; None if there are none.

    Parameters without a column in the power file do not change the epochs.
    """
    wanted = dict(configuration.parameters)
    for measured, limits in epochs.items():
        agrees = all(wanted.get(name, value) == value for name, value in measured.parameters)
        if measured.batch_size == configuration.batch_size and agrees:
            return limits
    return None


def level_curves(by_target: Mapping[float, Mapping[Configuration, tuple[TrainingPath, ...]]], target: float) -> Curves:
    """The curves of all training paths of a workload by configuration and run, with levels up to a target.

    The traces have targets of a metric to maximise. A path whose number is not unique has no curve.

    Args:
        by_target: Training paths by target and configuration.
        target: The target; levels above it are unknown to a training that ends there.
    """
    points: dict[Configuration, dict[int, dict[float, float]]] = {}
    ambiguous: set[tuple[Configuration, int]] = set()
    for level in sorted(level for level in by_target if level <= target):
        for arm, paths in by_target[level].items():
            ambiguous.update((arm, run) for run, count in Counter(path.run for path in paths).items() if count > 1)
            for path in paths:
                if path.target_epoch is not None:
                    # Levels rise, so that the highest level reached after the same epoch remains.
                    points.setdefault(arm, {}).setdefault(path.run, {})[path.target_epoch] = level
    return {
        arm: {
            run: curve
            for run, found in of_arm.items()
            if (arm, run) not in ambiguous and (curve := MetricCurve.from_points(found.items())) is not None
        }
        for arm, of_arm in points.items()
    }
