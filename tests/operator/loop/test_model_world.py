"""The model world of the engine's tests holds what the real worlds hold."""

from __future__ import annotations

import pytest
from model_world import KEY, ModelWorld, job
from world_contract import WorldBench, WorldContract


class TestModelWorld(WorldContract):
    @pytest.fixture
    def bench(self) -> WorldBench:
        world = ModelWorld(job())
        return WorldBench(
            world,
            KEY,
            progress_arrives=lambda name: world.report(name, metric=0.5),
            starts=lambda name: world.started[name],
        )
