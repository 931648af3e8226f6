"""Backends in memory for the tests of decisions."""

from collections.abc import Callable
from typing import Any

import pytest

from support.backends.model_backend import ModelBackend, job


@pytest.fixture
def backend() -> ModelBackend:
    """A backend with an hourly job."""
    return ModelBackend(job())


@pytest.fixture
def backend_with() -> Callable[..., ModelBackend]:
    """Makes a backend whose job has other fields in its spec."""

    def made(**changes: Any) -> ModelBackend:
        return ModelBackend(job(**changes))

    return made
