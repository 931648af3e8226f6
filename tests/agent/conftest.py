"""Simulated GPUs and real agents on them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agents.agent_fixture import AgentFixture, new_agent_fixture, short_folder, until
from wattloop.gpus.agent_process import stop_agent


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as name:
        yield Path(name)


@pytest.fixture
def agent_fixture(folder: Path) -> Iterator[AgentFixture]:
    with new_agent_fixture(folder) as agent_fixture:
        yield agent_fixture


@pytest.fixture(scope="module")
def agent_of_module() -> Iterator[AgentFixture]:
    with short_folder() as name, new_agent_fixture(Path(name)) as agent_fixture:
        process = agent_fixture.start()
        yield agent_fixture
        assert stop_agent(process) == 0, agent_fixture.log.read_text()


@pytest.fixture
def agent(agent_of_module: AgentFixture) -> Iterator[AgentFixture]:
    """An agent fixture with a running agent. The tests of a module share it; each finds the GPUs reset."""
    yield agent_of_module
    agent_of_module.gpus.clear_faults()
    until(lambda: agent_of_module.limits == [400, 400, 400], "every GPU is restored")
