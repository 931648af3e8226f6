"""Configurations: the arms of batch sizes and further parameters, their order, coordinates and prior."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattloop_planner.bandit.configuration import Configuration, ConfigurationSpace, Parameter, scale_of
from wattloop_planner.bandit.kernel import parameter_coordinates, parameter_neighbours, prior_covariance, prior_mean
from wattloop_planner.bandit.priors import EPOCH_COST, EPOCHS, OTHER_GPU

RATE = Parameter("learning_rate", ("0.1", "0.4", "1.6"), "0.4")
DROPOUT = Parameter("dropout", ("0", "0.3", "0.1"), "0.1")
OPTIMIZER = Parameter("optimizer", ("sgd", "adam", "lion"), "adam")
SIZES = (16, 32, 128)
spaces = st.builds(
    ConfigurationSpace,
    st.just(SIZES),
    st.sampled_from(SIZES),
    st.lists(st.sampled_from([RATE, DROPOUT, OPTIMIZER]), unique=True, max_size=3).map(tuple),
)


def test_the_arms_of_a_job_without_parameters_are_its_batch_sizes() -> None:
    space = ConfigurationSpace(SIZES, 32)
    assert space.configurations == tuple(Configuration(size) for size in SIZES)
    assert space.default == 1


@given(spaces)
def test_each_arm_has_an_index_and_no_two_are_equal(space: ConfigurationSpace) -> None:
    assert [space.index(arm.batch_size, arm.parameters) for arm in space.configurations] == list(range(len(space)))


def test_an_attempt_without_a_value_of_a_parameter_had_its_default() -> None:
    space = ConfigurationSpace(SIZES, 32, (RATE,))
    assert space.index(32) == space.default
    assert space.index(32, (("learning_rate", "0.4"),)) == space.default


@pytest.mark.parametrize("parameters", [(("momentum", "0.9"),), (("learning_rate", "0.2"),)])
def test_an_attempt_with_another_parameter_or_value_is_no_arm(parameters: tuple[tuple[str, str], ...]) -> None:
    assert ConfigurationSpace(SIZES, 32, (RATE,)).index(32, parameters) is None


def test_values_of_numbers_are_ordered_by_size_and_those_of_a_choice_are_not() -> None:
    neighbours = parameter_neighbours(ConfigurationSpace((32,), 32, (DROPOUT,)))
    # 0, 0.3, 0.1: 0 and 0.3 are two steps apart.
    assert neighbours.tolist() == [[False, False, True], [False, False, True], [True, True, False]]
    assert parameter_neighbours(ConfigurationSpace((32,), 32, (OPTIMIZER,))).sum() == 6


@given(spaces)
def test_neighbours_by_a_parameter_differ_in_that_parameter_alone(space: ConfigurationSpace) -> None:
    for one, other in np.argwhere(parameter_neighbours(space)):
        first, second = space.configurations[one], space.configurations[other]
        assert first.batch_size == second.batch_size
        assert sum(x != y for x, y in zip(first.parameters, second.parameters, strict=True)) == 1


def test_coordinates_are_octaves_of_a_logarithmic_scale_and_parts_of_the_range_of_a_linear_one() -> None:
    assert parameter_coordinates(ConfigurationSpace((32,), 32, (RATE,))).tolist() == [[-2.0, 0.0, 2.0]]
    assert parameter_coordinates(ConfigurationSpace((32,), 32, (DROPOUT,))).round(9).tolist() == [[-1.0, 2.0, 0.0]]


@given(spaces)
def test_the_prior_of_arms_with_default_values_is_that_of_batch_sizes_alone(space: ConfigurationSpace) -> None:
    alone = ConfigurationSpace(SIZES, space.default_batch_size)
    defaults = [space.arm(size) for size in SIZES]
    for prior in (EPOCHS, EPOCH_COST, OTHER_GPU):
        assert prior_mean(prior, space)[defaults].tolist() == pytest.approx(prior_mean(prior, alone).tolist())
        found = prior_covariance(prior, space)[np.ix_(defaults, defaults)]
        assert found == pytest.approx(prior_covariance(prior, alone))


@given(spaces)
@settings(max_examples=20, deadline=None)
def test_the_prior_covariance_is_symmetric_and_positive_definite(space: ConfigurationSpace) -> None:
    for prior in (EPOCHS, EPOCH_COST, OTHER_GPU):
        covariance = prior_covariance(prior, space)
        assert covariance == pytest.approx(covariance.T)
        assert np.linalg.eigvalsh(covariance).min() > 1e-6


@pytest.mark.parametrize(
    ("candidates", "default", "message"),
    [(("0.1", "1e-1"), "0.1", "occurs twice"), (("a", "b"), "c", "the default c is not one of its candidates")],
)
def test_invalid_candidates_are_refused(candidates: tuple[str, ...], default: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Parameter("p", candidates, default)


@pytest.mark.parametrize(
    ("candidates", "scale"),
    [
        # A learning rate, a weight decay, a number of units: equal ratios, or nearly.
        ("0.03 0.1 0.3", "log"),
        ("1e-5 1e-4 1e-3 1e-2", "log"),
        ("128 256 512", "log"),
        ("0.05 0.2 0.8", "log"),
        # A dropout, a number of layers: equal differences, or nearly.
        ("10 20 30", "linear"),
        ("0.1 0.3 0.5", "linear"),
        ("0.85 0.9 0.95 0.99", "linear"),
        ("1 2 3 4", "linear"),
        # What is not positive has no ratio.
        ("0 0.001 0.01 0.1", "linear"),
        ("-1 1 100", "linear"),
        # Two candidates, and one.
        ("0.001 0.1", "log"),
        ("0.1 0.2", "log"),
        ("0.9 0.99", "linear"),
        ("0.1", "linear"),
        # Not all are numbers.
        ("adam sgd", "choice"),
        ("0.1 adam", "choice"),
        ("0.1 nan", "choice"),
        ("0.1 1_0", "choice"),
    ],
)
def test_the_scale_follows_from_the_candidates(candidates: str, scale: str) -> None:
    values = candidates.split()
    assert scale_of(values) == scale_of(values[::-1]) == scale
