"""The plan service in the fuzz target `reporting`: messages of ranks, and what must hold of the stored pipelines."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from itertools import combinations
from typing import Any
from unittest import mock

from support.fuzzing.target import DefectError
from support.pipelines.registrations import rank_registration
from support.pipelines.simulated_ranks import measurements_of
from wattloop.pipeline.plan_messages import PLAN, Directive, RankRegistration, RankReport, StragglerNotice
from wattloop.wire.wire_form import WireForm
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.reconcile.pipeline.frontier_planning import plan_frontier
from wattloop_operator.reconcile.pipeline.pipeline_state import (
    MAX_RANKS,
    JobPlan,
    PipelineFrontier,
    PipelineKey,
    PipelineState,
)
from wattloop_operator.reconcile.pipeline.profile import PlanningRequest, common_clocks
from wattloop_operator.reconcile.pipeline.rank_directives import needs_plan
from wattloop_operator.reconcile.pipeline.registrations import Registrar, check_microbatches, contradict
from wattloop_operator.reporting import pipeline_commits, pipeline_planner
from wattloop_operator.reporting.pipeline_commits import MessageGroups, PipelineCommits
from wattloop_operator.reporting.pipeline_planner import PipelinePlanner, StateOf
from wattloop_operator.store import Store
from wattloop_operator.store.pipeline_store import RETENTION, Change, StoredPipeline, WaitingPipeline

RANKS = 2
MAX_PLANNING_SECONDS = 120.0
# 64 GPUs of 10 kW, and a counter that steps while an instruction runs.
MAX_PROCESS_WATTS, COUNTER_STEP_SECONDS = 640_000.0, 1.0
RENEWAL = RETENTION / 2
ReadState = Callable[[PipelineKey], PipelineState | None]
PIPELINE_TOKENS = (
    b"PUT {own}/pipeline/ranks/0\n", b"POST {own}/pipeline/ranks/1/report\n", b"POST {own}/pipeline/straggler\n",
    b'"process": ', b'"instructions": [', b'"forward:0:0"', b'"backward:1:1"', b'"clocks_megahertz": [',
    b'"directive": ', b'"iteration_seconds": ', b'"measurements": [', b'"profiled": true', b'"mismatch": "m"',
    b'"refusal": "r"', b"5e-324"
)  # fmt: skip


def messages() -> list[tuple[str, str, WireForm]]:
    """Method, path and body of the messages by which two ranks register, are measured and get a plan."""
    registrations = [rank_registration(rank) for rank in range(RANKS)]
    timed = RankReport(registrations[0].process, 1, 0, 5, measured_iterations=5, iteration_seconds=0.5)
    # Each acknowledges the directive to measure, has measured, acknowledges that to run the plan, and runs it.
    steps = [
        timed,
        replace(timed, sequence=2, directive=1),
        replace(timed, sequence=3, directive=1, applied_directive=1, blocking_watts=60.0, profiled=True),
        replace(timed, sequence=4, directive=3),
        replace(timed, sequence=5, directive=3, applied_directive=3, iteration_joules=90.0, finished=True),
    ]
    sent: list[tuple[str, str, WireForm]] = [("PUT", f"pipeline/ranks/{each.rank}", each) for each in registrations]
    for step in steps:
        for each in registrations:
            measured = measurements_of(each, each.clocks_megahertz) if step.profiled else ()
            report = replace(step, process=each.process, measurements=measured)
            sent.append(("POST", f"pipeline/ranks/{each.rank}/report", report))
    return [*sent, ("POST", "pipeline/straggler", StragglerNotice(2.5, "throttled"))]


def single_messages() -> list[tuple[str, str, WireForm]]:
    """Further messages, each of which is a seed of its own."""
    rank = rank_registration(0)
    return [
        ("PUT", "pipeline/ranks/0", replace(rank, process="f" * 32, gpu_product="NVIDIA H200")),
        ("PUT", "pipeline/ranks/1", replace(rank_registration(1), instructions=("forward:1:0",))),
        ("PUT", "pipeline/ranks/0", rank_registration(0, data_parallel=4, tensor_parallel=2, stages=4)),
        (
            "POST",
            "pipeline/ranks/0/report",
            RankReport("f" * 32, 1, 0, 0, mismatch="another order", refusal="NotYours"),
        ),
        ("POST", "pipeline/straggler", StragglerNotice()),
    ]


class PipelineChecks:
    """Checks the pipelines of two recurrences of different jobs, of which messages may change the first alone.

    Args:
        own: The recurrence that messages may change.
        other: The one that they may not.
        newest: The newest state of a pipeline; by default that of the store, which takes longer to read.

    Attributes:
        modes: The modes of the directives that ranks have got.
        job_plan: What the job of the first recurrence says of its plan, which is not stored.
    """

    def __init__(
        self,
        store: Store,
        own: TrainingRecurrence,
        other: TrainingRecurrence,
        utc_now: Callable[[], datetime],
        newest: ReadState | None = None,
    ) -> None:
        self._store = store.pipelines
        self._newest = newest or store.pipelines.read
        self._utc_now = utc_now
        self.modes: set[str] = set()
        self.job_plan = JobPlan()
        self._renewed_at = utc_now() - RENEWAL
        self._own, self._other = (
            PipelineState(
                PipelineKey(each.spec.job_ref.uid, each.spec.index, each.spec.attempt),
                each.metadata.namespace or "",
                each.metadata.name,
            )
            for each in (own, other)
        )
        self._other_before: PipelineState | None = None
        self._before: PipelineState | None = None

    def reset(self) -> None:
        """Delete the first pipeline, and have the second one exist."""
        self._store.delete_job(self._own.key.job_uid)
        self._before = None
        if self._utc_now() >= self._renewed_at + RENEWAL:
            # Before the service deletes it as one that has not changed for long.
            self._renewed_at = self._utc_now()
            self._store.delete_job(self._other.key.job_uid)
            self._created(self._other)
        self._other_before = self._store.read(self._other.key)

    def check(self, answer: bytes) -> None:
        """Check the pipelines after a message of a rank that was accepted, and its answer."""
        after = self._planned()
        if after is not None:
            _check_state(after)
            if self._before is not None:
                _check_change(self._before, after)
            body = json.loads(answer)
            # The answer to an announcement of a straggler repeats it.
            if "known" in body:
                _check_directive(after, Directive.from_json(body))
                self.modes.add(body["mode"])
        self._before = after

    def check_other(self) -> None:
        """Check that the second pipeline has not changed."""
        if self._store.read(self._other.key) != self._other_before:
            raise DefectError("a message changed the pipeline of another job")

    def _created(self, new: PipelineState) -> None:
        def registered(state: PipelineState) -> PipelineState:
            registrar = Registrar(state, self._utc_now())
            for rank in range(RANKS):
                registrar.merge(rank_registration(rank))
            return registrar.state

        self._store.change(new, None, registered, lambda state: state, self._utc_now())

    def _planned(self) -> PipelineState | None:
        """The first pipeline's state, once the planner is through with it."""
        end = time.monotonic() + MAX_PLANNING_SECONDS
        while (state := self._read()) is not None and needs_plan(state, self._utc_now()):
            if time.monotonic() >= end:
                raise DefectError(f"no plan and no problem within {MAX_PLANNING_SECONDS:g} s")
            time.sleep(0.001)
        return state

    def _read(self) -> PipelineState | None:
        state, plan = self._newest(self._own.key), self.job_plan
        return None if state is None else replace(state, job_plan=plan)


class RecordingStore:
    """The pipelines of a store, of which it keeps the newest states; see `Pipelines`."""

    def __init__(self, store: Store) -> None:
        self._pipelines = store.pipelines
        self.newest: dict[PipelineKey, PipelineState] = {}

    def change(
        self, new: PipelineState, known: StoredPipeline | None, merge: Change, decide: Change, now: datetime
    ) -> StoredPipeline:
        changed = self._pipelines.change(new, known, merge, decide, now)
        self.newest[new.key] = changed.state
        return changed

    def delete_old(self, now: datetime) -> int:
        return self._pipelines.delete_old(now)

    def waiting(self, now: datetime) -> list[WaitingPipeline]:
        return self._pipelines.waiting(now)


@contextmanager
def running_commits(store: Any, utc_now: Callable[[], datetime]) -> Iterator[PipelineCommits]:
    """Commits that wait for no further messages."""
    with (
        mock.patch.object(pipeline_commits, "REGISTRATION_WAIT_SECONDS", 0.0),
        mock.patch.object(pipeline_commits, "REPORT_WAIT_SECONDS", 0.0),
        mock.patch.object(MessageGroups, "pause"),
        PipelineCommits(store, utc_now) as commits,
    ):
        yield commits


class ObservedPlanner(PipelinePlanner):
    """A planner that says whether it is idle."""

    def __init__(
        self, store: Any, context_of: StateOf, utc_now: Callable[[], datetime], may_plan: threading.Event | None = None
    ) -> None:
        def plan(request: PlanningRequest, now: datetime) -> PipelineFrontier:
            if may_plan is not None:
                may_plan.wait()
            return replace(plan_frontier(request), planned_at=now)

        super().__init__(store, plan, context_of, utc_now)
        self._is_idle = threading.Event()

    def plan_next(self) -> bool:
        self._is_idle.clear()
        try:
            return super().plan_next()
        finally:
            self._is_idle.set()

    @property
    def has_planned(self) -> bool:
        """Whether nothing is planned, and nothing waits for it."""
        return not self._store.waiting(self._utc_now()) and self._is_idle.is_set()


@contextmanager
def running_planner(
    store: Any, context_of: StateOf, utc_now: Callable[[], datetime], may_plan: threading.Event | None = None
) -> Iterator[ObservedPlanner]:
    """A planner that looks for work all the time; it plans while the event is set."""
    with (
        mock.patch.object(pipeline_planner, "POLL_SECONDS", 0.001),
        ObservedPlanner(store, context_of, utc_now, may_plan) as planner,
    ):
        yield planner


def _check_state(state: PipelineState) -> None:
    if len(state.ranks) > MAX_RANKS:
        raise DefectError(f"{len(state.ranks)} ranks")
    registrations = [rank.registration for rank in state.ranks.values()]
    for each in registrations:
        # What is stored is a valid form, and complete.
        RankRegistration.from_json(json.loads(json.dumps(each.to_json())))
        check_microbatches(each)
    for first, second in combinations(registrations, 2):
        if contradict(first, second):
            raise DefectError(f"ranks {first.rank} and {second.rank} contradict each other")
    _check_energies(state)


def _check_energies(state: PipelineState) -> None:
    """Check that no energy is stored that GPUs cannot have, since plans and later recurrences would follow from it."""
    processes = () if state.profile is None else state.profile.processes.values()
    energies = [(each.energy_joules, each.time_seconds) for process in processes for each in process.measurements]
    reports = [rank.report for rank in state.ranks.values() if rank.report is not None]
    energies += [(each.iteration_joules, each.iteration_seconds or 0.0) for each in reports]
    for joules, seconds in energies:
        if (joules or 0.0) > MAX_PROCESS_WATTS * (seconds + COUNTER_STEP_SECONDS):
            raise DefectError(f"a rank has an energy that no GPU can have: {joules:g} J in {seconds:g} s")


def _check_change(before: PipelineState, after: PipelineState) -> None:
    if after.directive.number < before.directive.number:
        raise DefectError(f"directive {after.directive.number} after {before.directive.number}")
    for number, old in before.ranks.items():
        new = after.ranks.get(number)
        if old.report is None or new is None or new.registration != old.registration:
            continue
        if new.report is None or new.report.sequence < old.report.sequence:
            raise DefectError(f"the report of rank {number} went back: {old.report} then {new.report}")


def _check_directive(state: PipelineState, directive: Directive) -> None:
    if not set(directive.clocks_megahertz) <= set(common_clocks(state)):
        raise DefectError(f"clocks that not all ranks may hold: {directive.clocks_megahertz}")
    lengths = {len(rank.registration.instructions) for rank in state.ranks.values()}
    if directive.mode == PLAN and len(directive.clocks_megahertz) not in lengths:
        raise DefectError(f"a plan of {len(directive.clocks_megahertz)} clocks for {lengths} instructions")
