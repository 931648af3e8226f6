"""The options of a simulation, from the command line and from the columns of a jobs file."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattloop.errors import InputError, UsageError
from wattloop.files.csv_table import Row, read_table
from wattloop.wire.message_fields import shown
from wattloop_research.simulation.configurations import ParameterOption, parameter_options
from wattloop_research.simulation.policies import POLICIES
from wattloop_research.simulation.simulated_attempt import Stop

MAX_SEEDS = 100_000
MAX_RECURRENCES = 1_000_000


@dataclass(frozen=True)
class JobOptions:
    """The options of one job, as `OPTIONS` describes them; None for what is not given."""

    job: str
    gpu: str
    train: str
    power: str
    dataset: str
    network: str
    optimizer: str
    target_metric: float
    max_epochs: int
    default_batch_size: int
    eta: float
    policy: str
    recurrences: int | None
    seeds: tuple[int, ...]
    window: int | None
    stop: Stop
    switch_at: int | None
    switch_target_metric: float | None
    history: str | None
    parameters: tuple[ParameterOption, ...]
    curves: bool


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def _integer(minimum: int, maximum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not minimum <= value <= maximum:
            raise ValueError
        return value

    return parse


def _fraction(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError
    return value


def _one_of(names: Mapping[str, object]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            raise ValueError
        return text

    return parse


def _yes_or_no(text: str) -> bool:
    if text not in {"yes", "no"}:
        raise ValueError
    return text == "yes"


def _seeds(text: str) -> tuple[int, ...]:
    seeds: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        minimum, maximum = int(first), int(last if dash else first)
        if not 0 <= maximum - minimum < MAX_SEEDS:
            raise ValueError
        seeds.update(range(minimum, maximum + 1))
    return tuple(sorted(seeds))


@dataclass(frozen=True)
class SimulationOption:
    """An option of the command line and of a jobs file.

    Attributes:
        parse: Converts text to a value; raises ValueError.
        default: Text used if the option is absent; None: the option is required.
    """

    parse: Callable[[str], object]
    expected: str
    default: str | None
    meaning: str


_POSITIVE = _integer(1, 2**53)
OPTIONS: dict[str, SimulationOption] = {
    "train": SimulationOption(str, "a file", None, "CSV: epochs that each training path took to each target metric"),
    "power": SimulationOption(str, "a file", None, "CSV: time and power of an epoch at each power limit"),
    "dataset": SimulationOption(str, "a name", None, "dataset of the workload"),
    "network": SimulationOption(str, "a name", None, "network of the workload"),
    "optimizer": SimulationOption(str, "a name", None, "optimizer of the workload"),
    "target_metric": SimulationOption(_number, "a finite number", None, "target metric, as in the train file"),
    "max_epochs": SimulationOption(
        _POSITIVE, "a whole number of at least 1", None, "maximum number of epochs of an attempt"
    ),
    "default_batch_size": SimulationOption(
        _POSITIVE, "a whole number of at least 1", None, "the user's own batch size"
    ),
    "eta": SimulationOption(_fraction, "a number from 0 to 1", "0.5", "weight of energy against time in the cost"),
    "policy": SimulationOption(
        _one_of(POLICIES), f"one of {', '.join(POLICIES)}", "thompsonSampling", "policy to simulate"
    ),
    "recurrences": SimulationOption(
        lambda text: None if text == "auto" else _integer(1, MAX_RECURRENCES)(text),
        f"auto or a whole number from 1 to {MAX_RECURRENCES}",
        "auto",
        "number of recurrences; auto: 2 x batch sizes x power limits",
    ),
    "seeds": SimulationOption(_seeds, "seeds as in 3, 1-20 or 1,5,9", "1-20", "seeds; each runs one simulation"),
    "gpu": SimulationOption(str, "a name", "", "name of the GPU model, copied to the output"),
    "window": SimulationOption(
        _integer(0, 2**53), "a whole number of at least 0", "", "observations that the policy uses"
    ),
    "stop": SimulationOption(
        Stop, "inside or epoch-end", "inside", "where an attempt ends that has become too expensive"
    ),
    "switch_at": SimulationOption(
        _integer(0, 2**53), "a whole number of at least 0", "", "first recurrence with another target"
    ),
    "switch_target_metric": SimulationOption(_number, "a finite number", "", "target metric from --switch-at on"),
    "history": SimulationOption(
        str, "a file", "", "output of a simulation on another GPU model, as initial observations"
    ),
    "parameters": SimulationOption(
        lambda text: parameter_options(text) if text else (),
        "NAME=DEFAULT, separated by commas",
        "",
        "further parameters that the policy chooses, each NAME=DEFAULT; their candidates are the values in "
        "the train file's column param:NAME, or learning_rate",
    ),
    "curves": SimulationOption(
        _yes_or_no, "yes or no", "yes", "whether the policy sees each attempt's metric by epoch"
    ),
    "job": SimulationOption(str, "a name", "", "name of the job, copied to the output"),
}


def flag_of(name: str) -> str:
    """The flag of an option on the command line.

    Example:
        >>> flag_of("max_epochs")
        '--max-epochs'
    """
    return f"--{name.replace('_', '-')}"


def required_options() -> list[str]:
    """The names of the options without a default."""
    return [name for name, option in OPTIONS.items() if option.default is None]


def options_of_command(given: Mapping[str, str | None]) -> JobOptions:
    """The job that the command line describes.

    Raises:
        UsageError: Options are missing, or one is invalid.
    """
    check_required(given, "the command line")
    values: dict[str, object] = {}
    for name, option in OPTIONS.items():
        text = given.get(name)
        values[name] = _read(name, option.default if text is None else text)
    return _checked(values, "the command line")


def options_of_jobs_file(path: str, given: Mapping[str, str | None]) -> Iterator[JobOptions]:
    """The jobs of a file, one per row; options of the command line apply where a cell is empty.

    A file name is relative to the working directory or, if no such file exists there, to the jobs file.

    Raises:
        InputError: A cell is invalid, or the file cannot be read.
        UsageError: A required option is missing.
    """
    rows = 0
    for row in read_table(path, ()):
        rows += 1
        cells = {name: row.cells.get(name) or given.get(name) for name in OPTIONS}
        check_required(cells, f"{path}: line {row.line}")
        values: dict[str, object] = {}
        for name, option in OPTIONS.items():
            cell = row.cells.get(name, "")
            text = cell or given.get(name)
            try:
                values[name] = _read(name, option.default if text is None else text)
            except UsageError:
                if not cell:
                    raise
                raise InputError(row.source, shown(cell), option.expected, row.line, name) from None
            if cell and name in {"train", "power", "history"}:
                values[name] = _resolved_file(path, cell)
        yield _checked(values, f"{path}: line {row.line}", row)
    if not rows:
        raise InputError(path, "no row below the header", "one row per job", 2, 1)


def check_required(given: Mapping[str, str | None], place: str, others: Sequence[str] = ()) -> None:
    """Check that all options without a default are given.

    Args:
        given: The options by name; None for a missing one.
        place: Where they are given, for the message.
        others: Descriptions of further missing options.

    Raises:
        UsageError: Some are missing; the message lists them all.
    """
    missing = [name for name in required_options() if given.get(name) is None]
    described = [*others, *(f"{flag_of(name)}: {OPTIONS[name].meaning}; {OPTIONS[name].expected}" for name in missing)]
    if described:
        text = "".join(f"\n  {each}" for each in described)
        raise UsageError(f"{place}: {len(described)} required option(s) are missing:{text}")


def _read(name: str, text: str | None) -> object:
    option = OPTIONS[name]
    if text is None:
        return None
    if text == "" and option.default == "":
        return () if name == "parameters" else "" if name in {"gpu", "job"} else None
    try:
        return option.parse(text)
    except ValueError:
        raise UsageError(f"{flag_of(name)}: found {shown(text)}, expected {option.expected}") from None


def _checked(values: dict[str, object], place: str, row: Row | None = None) -> JobOptions:
    values["job"] = values["job"] or f"{values['dataset']}-{values['network']}"
    options = JobOptions(**values)  # type: ignore[arg-type]
    if options.policy == "zeus" and options.parameters:
        raise UsageError(
            f"{place}: policy zeus chooses the batch size alone; leave out --parameters, or use another policy"
        )
    if (options.switch_at is None) != (options.switch_target_metric is None):
        missing = "switch_at" if options.switch_at is None else "switch_target_metric"
        if row is not None:
            raise InputError(
                row.source, "an empty cell", "a value, because the other option has one", row.line, missing
            )
        raise UsageError(f"{place}: --switch-at and --switch-target-metric require each other; {missing} is missing")
    return options


def _resolved_file(jobs_file: str, name: str) -> str:
    beside = Path(jobs_file).parent / name
    return str(beside) if not Path(name).exists() and beside.exists() else name
