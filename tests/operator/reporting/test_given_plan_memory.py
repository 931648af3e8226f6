"""Plans that users give count in the bounds of what is remembered of pipelines."""

import asyncio
import gc
import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from support.pipelines.registrations import rank_registration
from support.reporting.memory_progress_store import DECIDED, MemoryProgressStore
from support.reporting.reporting_api import NOW
from wattloop_operator.api.frequency_plan import MAX_ARCHIVE_CHARACTERS, MAX_KNOB_VALUES, MAX_OPERATIONS, FrequencyPlan
from wattloop_operator.api.model import API_VERSION
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import Request
from wattloop_operator.cluster.reported_objects import JobSettings
from wattloop_operator.memory_shares import PIPELINE_SETTINGS, WAITING_MESSAGES
from wattloop_operator.reconcile.pipeline.held_bytes import given_bytes, state_bytes
from wattloop_operator.reconcile.pipeline.pipeline_state import GivenPlan, JobPlan, PipelineKey, PipelineState
from wattloop_operator.reporting.interfaces import BearerToken, TooManyRequestsError
from wattloop_operator.reporting.pipeline_commits import PipelineCommits
from wattloop_operator.reporting.pipeline_service import PipelineService
from wattloop_operator.reporting.report_limits import ReportLimits
from wattloop_operator.store import open_store

KNOBS = MAX_KNOB_VALUES // MAX_OPERATIONS


def operations(**knobs: str) -> list[dict[str, Any]]:
    return [
        {"instruction": "forward", "megahertz": 900}
        | ({"knobs": {name: f"{text}{number}" for name, text in knobs.items()}} if knobs else {})
        for number in range(MAX_OPERATIONS)
    ]


def spec_of(name: str) -> dict[str, Any]:
    if name == "archive":
        return {"archive": "A" * MAX_ARCHIVE_CHARACTERS}
    knobs = {f"knob{number}": "v" * 60 for number in range(KNOBS)} if name == "listed with knobs" else {}
    return {"stages": [{"operations": operations(**knobs)}]}


def given(spec: dict[str, Any], digest: str = "digest") -> JobPlan:
    body = {"apiVersion": API_VERSION, "kind": "FrequencyPlan", "metadata": {"name": "mine"}, "spec": spec}
    return JobPlan(given=GivenPlan("mine", digest, FrequencyPlan.from_wire(json.loads(json.dumps(body))).spec))


@pytest.mark.parametrize("name", ["archive", "listed", "listed with knobs"])
def test_the_size_of_a_given_plan_is_what_it_takes_in_memory(name: str) -> None:
    given(spec_of(name))
    gc.collect()
    tracemalloc.start()
    try:
        plan = given(spec_of(name))
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.9 * taken < given_bytes(plan) < 2 * taken
    assert given_bytes(plan) < PIPELINE_SETTINGS


def test_the_states_of_many_attempts_with_the_largest_plans_hold_no_more_than_their_share(tmp_path: Path) -> None:
    class Recurrences(MemoryProgressStore):
        def read(self, namespace: str, name: str) -> Any:
            return DECIDED.model_copy(update={"metadata": DECIDED.metadata.model_copy(update={"name": name})})

    recurrences, spec = Recurrences(now=0.0), spec_of("archive")
    with open_store(tmp_path / "wattloop.db") as store:
        commits = PipelineCommits(store.pipelines, lambda: NOW)
        limits = ReportLimits(lambda: 0.0)
        service = PipelineService(
            recurrences, recurrences, commits, limits, plan_of=lambda each: given(spec, each.metadata.name),
            clock=lambda: 0.0,
        )  # fmt: skip

        async def ask() -> None:
            for number in range(40):
                state = await service.authorize(BearerToken("token"), "team", f"run-{number}")
                assert state_bytes(state) > MAX_ARCHIVE_CHARACTERS

        asyncio.run(ask())
    held = sum(state_bytes(each) for each in service._states.values() if each is not None)
    assert PIPELINE_SETTINGS / 2 < held <= PIPELINE_SETTINGS


def test_a_plan_counts_once_for_all_messages_of_its_pipeline_that_wait(tmp_path: Path) -> None:
    spec = spec_of("archive")
    with open_store(tmp_path / "wattloop.db") as store:
        # It is not started, so that all messages wait.
        commits = PipelineCommits(store.pipelines, lambda: NOW)
        accepted: list[int] = []

        async def flood() -> None:
            for job in range(100):
                plan = given(spec, str(job))
                state = PipelineState(PipelineKey(f"job-{job}", 0, 0), "team", f"run-{job}", job_plan=plan)
                for rank in range(3):
                    waiting = asyncio.ensure_future(commits.committed(state, rank_registration(rank, stages=3)))
                    done, _ = await asyncio.wait([waiting], timeout=0)
                    if done:
                        with pytest.raises(TooManyRequestsError):
                            waiting.result()
                    else:
                        accepted.append(job)
                        waiting.cancel()

        asyncio.run(flood())
    pipelines = len(set(accepted))
    assert 0.8 * WAITING_MESSAGES < pipelines * MAX_ARCHIVE_CHARACTERS <= WAITING_MESSAGES
    assert len(accepted) > 2 * pipelines


def test_attempts_whose_jobs_name_one_plan_share_it() -> None:
    plan = {"apiVersion": API_VERSION, "kind": "FrequencyPlan", "metadata": {"name": "mine"}, "spec": spec_of("listed")}
    job = {
        "apiVersion": API_VERSION,
        "kind": "RecurringTrainingJob",
        "metadata": {"name": DECIDED.spec.job_ref.name, "uid": DECIDED.spec.job_ref.uid, "namespace": "team"},
        "spec": {
            "objective": {"target": {"metric": "accuracy", "threshold": "0.9"}},
            "batchSize": {"default": 64, "candidates": [64]},
            "power": {"mode": "None", "frequencyPlan": {"name": "mine"}},
            "template": {"spec": {"template": {"spec": {"containers": [{"name": "train"}]}}}},
        },
    }

    def transport(request: Request) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(json.dumps(plan if "frequencyplans" in request.path else job))
        return found

    settings = JobSettings(ClusterApi(transport), time.monotonic)
    first, second = (settings.plan_of(DECIDED).given for _ in range(2))
    assert first.spec is not None
    assert second is first
