"""A world in memory for the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from model_world import KEY, ModelWorld, job

from wattloop_operator.loop.settle import settle


@pytest.fixture
def world() -> ModelWorld:
    """A world with an hourly job."""
    return ModelWorld(job())


@pytest.fixture
def world_with() -> Callable[..., ModelWorld]:
    """Makes a world whose job has other fields of its spec."""

    def made(**changes: Any) -> ModelWorld:
        return ModelWorld(job(**changes))

    return made


@pytest.fixture
def settled() -> Callable[[ModelWorld], None]:
    """Takes turns until the engine asks for nothing more."""

    def settle_world(world: ModelWorld) -> None:
        settle(world, KEY, world.clock)

    return settle_world
