"""The posterior after a run that missed the target, compared with the integrals that define it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from wattloop_planner.bandit.gaussian_process import moments_beyond

MEANS = st.floats(-2, 2)
VARIANCES = st.floats(0.01, 4)
NOISES = st.floats(0.02, 1)
BOUNDS = st.floats(-2, 2)
OUTLIER_PROBABILITIES = st.floats(0, 1)


def integrated(
    mean: float, variance: float, noise_sd: float, bound: float, outlier_probability: float
) -> tuple[float, float]:
    """Mean and variance of prior × likelihood, summed on a fine grid."""
    sd = np.sqrt(variance)
    values = np.linspace(mean - 30 * sd, mean + 30 * sd, 60_001)
    beyond = ndtr((values - bound) / noise_sd)
    weight = np.exp(-((values - mean) ** 2) / (2 * variance)) * (
        outlier_probability + (1 - outlier_probability) * beyond
    )
    weight /= weight.sum()
    middle = float(weight @ values)
    return middle, float(weight @ (values - middle) ** 2)


@given(MEANS, VARIANCES, NOISES, BOUNDS, OUTLIER_PROBABILITIES)
def test_the_moments_are_those_of_the_exact_posterior(
    mean: float, variance: float, noise_sd: float, bound: float, outlier_probability: float
) -> None:
    found = moments_beyond(mean, variance, noise_sd, bound, outlier_probability)
    assert found == pytest.approx(
        integrated(mean, variance, noise_sd, bound, outlier_probability), rel=1e-4, abs=1e-4 * variance
    )


@given(MEANS, VARIANCES, NOISES, st.floats(0, 1000), st.floats(0.01, 1))
def test_a_very_unlikely_bound_counts_as_an_outlier(
    mean: float, variance: float, noise_sd: float, beyond: float, outlier_probability: float
) -> None:
    far = mean + (10 + beyond) * np.hypot(np.sqrt(variance), noise_sd)
    assert moments_beyond(mean, variance, noise_sd, far, outlier_probability) == pytest.approx(
        (mean, variance), rel=1e-9
    )
