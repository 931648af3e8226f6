"""A world in memory for the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.backends.model_backend import KEY, ModelBackend, job
from wattloop_operator.driver import reconcile


@pytest.fixture
def backend() -> ModelBackend:
    """A world with an hourly job."""
    return ModelBackend(job())


@pytest.fixture
def backend_with() -> Callable[..., ModelBackend]:
    """Makes a world whose job has other fields of its spec."""

    def made(**changes: Any) -> ModelBackend:
        return ModelBackend(job(**changes))

    return made


@pytest.fixture
def settled() -> Callable[[ModelBackend], None]:
    """Takes turns until the engine asks for nothing more."""

    def reconcile_backend(backend: ModelBackend) -> None:
        reconcile(backend, KEY, backend.clock)

    return reconcile_backend
