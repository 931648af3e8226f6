"""Backends in memory for the tests of decisions."""

import pytest

from support.backends.model_backend import ModelBackend, job


@pytest.fixture
def backend() -> ModelBackend:
    """A backend with an hourly job."""
    return ModelBackend(job())
