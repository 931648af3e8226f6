"""Wrong use of the public calls: each error is documented, and says what was found and what is valid."""

from collections.abc import Callable
from typing import Any

import pytest

from wattloop import EnergyMonitor, PowerLimitOptimizer, Run
from wattloop.errors import InputError, UsageError, WattloopError
from wattloop.power.selectors import Cost, MaxSlowdown
from wattloop.power.sequential_design import Requirements

NO_NUMBERS: tuple[Any, ...] = ("8", None, [1], float("nan"), float("inf"))
WITHOUT: dict[str, str] = {}


class Tensor:
    """Four numbers, as a framework's tensor describes them."""

    shape = (4,)

    def item(self) -> float:
        raise RuntimeError("a Tensor with 4 elements cannot be converted to Scalar")


def in_a_run(call: Callable[[Run], object]) -> Callable[[], object]:
    def carry_out() -> None:
        with Run(environment=WITHOUT) as run:
            call(run)

    return carry_out


def optimizer(**arguments: Any) -> PowerLimitOptimizer:
    return PowerLimitOptimizer(environment=WITHOUT, **arguments)


def used_again() -> None:
    run = Run(environment=WITHOUT)
    with run:
        pass
    run.report(metric=0.5)


def ended_twice() -> None:
    monitor = EnergyMonitor()
    monitor.begin_window("epoch")
    monitor.end_window("epoch")
    monitor.end_window("epoch")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Run(batch_size="8", environment=WITHOUT), "the global batch size is '8'; it must be a whole number"),  # type: ignore[arg-type]
        (lambda: Run(batch_size=2.5, environment=WITHOUT), "the global batch size is 2.5; it must be a whole"),  # type: ignore[arg-type]
        (lambda: Run(devices=0, environment=WITHOUT), "the number of devices is 0; it must be a whole number of at le"),
        (lambda: Run(max_epochs=0, environment=WITHOUT), "max_epochs is 0; it must be a whole number of at least 1"),
        (lambda: Run(gpus="0", environment=WITHOUT), "gpus is '0'; it must be a list of indices or UUIDs, such as"),
        (lambda: Run(gpus=[1.5], environment=WITHOUT), r"gpus is \[1.5\]; it must be a list"),  # type: ignore[list-item]
        (lambda: Run(environment=WITHOUT).report(metric=0.5), "this run has not begun: write `with run:` around"),
        (lambda: list(Run(environment=WITHOUT).epochs()), "this run has not begun"),
        (used_again, "this run has ended; make another wattloop.Run for another training"),
        (
            in_a_run(lambda run: run.report(metric=Tensor())),
            r"the metric: found a Tensor of shape \(4,\), expected one",
        ),  # type: ignore[arg-type]
        (
            in_a_run(lambda run: run.step(-1)),
            "the number of samples of a step is -1; it must be a number of at least 0",
        ),
        (ended_twice, "the window 'epoch' has been ended already; begin it again first"),
        (lambda: EnergyMonitor().end_window("epohc"), "no window 'epohc' is open; no window is open"),
        (lambda: EnergyMonitor().running(["epoch"]), r"found the name \['epoch'\] of a window, expected a string"),  # type: ignore[arg-type]
        (lambda: EnergyMonitor(sync="numpy"), "sync: found 'numpy', expected"),
        (lambda: optimizer(selector=Cost), "it must be an object with a method select, such as wattloop"),
        (lambda: optimizer(selector="Cost"), "selector is 'Cost'; it must be an object with a method select"),
        (lambda: EnergyMonitor().end_window("x" * 100_000), r"no window 'x{50,100}… is open"),
        (lambda: optimizer(run_or_agent=3), "run_or_agent is 3; it must be a wattloop.Run, the path of an agent's"),
        (lambda: optimizer(requirements=0.02), r"requirements is 0.02; it must be such as Requirements\(margin=0.02\)"),
        (lambda: optimizer(limits_watts=[]), "limits_watts is empty; leave it out to measure the allowed range"),
        (lambda: optimizer(limits_watts=300), "limits_watts is 300; it must be a list of watts, such as"),
        (lambda: optimizer(limits_watts=["300"]), "a value of limits_watts is '300'; it must be a power limit"),
        (lambda: optimizer(profile_again_at=0.5), "profile_again_at is 0.5; it must be a list of numbers"),
        (lambda: optimizer(profile_again_at=["a"]), "a value of profile_again_at is 'a'; it must be a finite number"),
        (lambda: optimizer(profile_file=3), "profile_file is 3; it must be a path"),
        (lambda: optimizer(gpus=3), "gpus is 3; it must be a list"),
        (
            lambda: optimizer().on_epoch_end(metric=Tensor()),
            r"the metric: found a Tensor of shape \(4,\), expected one",
        ),  # type: ignore[arg-type]
        (lambda: Cost(2), "eta is 2; it must be from 0 to 1, such as 0.5"),
        (lambda: Requirements(max_doubt=1.0), "max_doubt is 1.0; it must be from 0.01 to below 1, such as 0.05"),
        (lambda: Requirements(budget_seconds=0), "budget_seconds is 0; it must be positive and finite"),
    ],
)
def test_the_error_says_what_was_found_and_what_is_valid(call: Callable[[], object], message: str) -> None:
    with pytest.raises(WattloopError, match=message) as error:
        call()
    assert isinstance(error.value, (UsageError, InputError))


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
@pytest.mark.parametrize(
    "call",
    [
        lambda value: Run(batch_size=value, environment=WITHOUT),
        lambda value: Run(max_epochs=value, environment=WITHOUT),
        lambda value: Run(devices=value, environment=WITHOUT),
        lambda value: optimizer(limits_watts=[value]),
        lambda value: optimizer(profile_again_at=[value]),
        lambda value: optimizer().on_step_end(value),
        lambda value: in_a_run(lambda run: run.step([value]))(),
        lambda value: Requirements(margin=value),
        lambda value: Requirements(max_doubt=value),
        lambda value: Requirements(budget_seconds=value),
        MaxSlowdown,
        Cost,
    ],
)
def test_what_is_no_number_is_a_usage_error_wherever_one_is_expected(call: Callable[[Any], object], value: Any) -> None:
    with pytest.raises(UsageError):
        call(value)
