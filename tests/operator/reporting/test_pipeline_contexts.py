"""What a recurrence says of its pipeline is read once for all ranks that ask at the same time."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.reporting.memory_progress_store import DECIDED, MemoryProgressStore
from support.reporting.reporting_api import NOW
from wattloop.errors import OperationError
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reporting.interfaces import BearerToken
from wattloop_operator.reporting.pipeline_commits import PipelineCommits
from wattloop_operator.reporting.pipeline_service import STATE_SECONDS, PipelineService
from wattloop_operator.reporting.report_limits import ReportLimits
from wattloop_operator.store import open_store

RANKS = 20
NAMESPACE, NAME = "team", DECIDED.metadata.name


@dataclass
class CountedStore(MemoryProgressStore):
    """Counts the reads."""

    reads: int = 0

    def read(self, namespace: str, name: str) -> TrainingAttempt | None:
        self.reads += 1
        return super().read(namespace, name)


@dataclass
class Asked:
    """The service, and the recurrences that it reads."""

    recurrences: CountedStore
    service: PipelineService

    def ask(self) -> list[object]:
        """What the ranks get that ask at the same time."""

        async def all_ranks() -> list[object]:
            asking = (self.service.authorize(BearerToken("token"), NAMESPACE, NAME) for _ in range(RANKS))
            return list(await asyncio.gather(*asking, return_exceptions=True))

        return asyncio.run(all_ranks())


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    recurrences = CountedStore(now=0.0)
    with open_store(tmp_path / "wattloop.db") as store:
        commits = PipelineCommits(store.pipelines, lambda: NOW)
        limits = ReportLimits(lambda: recurrences.now)
        yield Asked(
            recurrences, PipelineService(recurrences, recurrences, commits, limits, clock=lambda: recurrences.now)
        )


def test_the_recurrence_is_read_once_for_all_ranks_and_again_later(asked: Asked) -> None:
    first = asked.ask()
    assert len({id(each) for each in first}) == 1
    assert asked.ask() == first
    assert asked.recurrences.reads == 1
    asked.recurrences.now = STATE_SECONDS
    asked.ask()
    assert asked.recurrences.reads == 2


def test_a_failed_read_is_told_to_all_who_wait_and_tried_again_by_the_next(asked: Asked) -> None:
    asked.recurrences.away = True
    assert [type(each) for each in asked.ask()] == [OperationError] * RANKS
    asked.recurrences.away = False
    assert not any(isinstance(each, Exception) for each in asked.ask())
    assert asked.recurrences.reads == 2


def test_a_rank_that_is_gone_ends_its_own_wait_alone(asked: Asked) -> None:
    async def one_is_gone() -> object:
        asking = [
            asyncio.ensure_future(asked.service.authorize(BearerToken("token"), NAMESPACE, NAME)) for _ in range(2)
        ]
        await asyncio.sleep(0)
        asking[0].cancel()
        return await asking[1]

    assert asyncio.run(one_is_gone()) is not None
    assert asked.recurrences.reads == 1
