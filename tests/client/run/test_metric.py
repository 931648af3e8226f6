"""Metrics as scripts give them."""

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from wattloop import Run
from wattloop.arguments import metric_named, metric_value
from wattloop.errors import InputError


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0.5, 0.5),
        (1, 1.0),
        (True, 1.0),
        (Decimal("0.25"), 0.25),
        (np.float32(0.5), 0.5),
        (np.array(0.5), 0.5),
        (np.array([[0.5]]), 0.5),
        (math.inf, math.inf),
    ],
)
def test_a_number_is_a_metric_in_any_form(value: Any, number: float) -> None:
    assert metric_value(value) == number


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros(4), r"the metric accuracy: found a ndarray of shape \(4,\), expected one number"),
        (np.zeros((2, 0)), r"found a ndarray of shape \(2, 0\)"),
        ("0.9", r"found '0\.9' \(str\), expected one number"),
        (np.str_("0.9"), r"found .*0\.9.*\(str_\), expected one number"),
        (None, r"found None \(NoneType\)"),
        ([0.9], r"found \[0\.9\] \(list\)"),
        (1j, r"found 1j \(complex\)"),
        (10**400, r"found 10+… \(int\)"),
        ({"accuracy": 0.9}, r"found \{'accuracy': 0\.9\} \(dict\)"),
    ],
)
def test_anything_else_is_rejected_with_what_was_found(value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        metric_value(value, "accuracy")


def test_the_first_name_that_is_there_counts() -> None:
    assert metric_named({"loss": 2.0, "eval_loss": 1.0}, ("eval_loss", "loss"), "the evaluation") == 1.0


def test_a_missing_name_lists_those_that_are_there() -> None:
    many = {f"metric_{index}": 0.0 for index in range(30)}
    with pytest.raises(InputError, match=r"the evaluation: found metric_0, .*, metric_19, …, expected a or b"):
        metric_named(many, ("a", "b"), "the evaluation")
    with pytest.raises(InputError, match=r"found no metrics, expected a among the metrics"):
        metric_named({}, ("a",), "the evaluation")


def test_a_run_rejects_a_metric_of_four_elements_and_goes_on() -> None:
    with Run(max_epochs=2, environment={}) as run:
        for _ in run.epochs():
            with pytest.raises(InputError, match=r"the metric: found a ndarray of shape \(4,\), expected one number"):
                run.report(metric=np.zeros(4))
            run.report(metric=np.array([0.5]))
    assert run.completed_epochs == 2
