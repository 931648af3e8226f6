"""Decisions under random events, kills at any action and clock jumps.

No start happens twice, no outcome is lost.
"""

import contextlib
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.backends.backend_contract import BackendContract, BackendHarness
from support.backends.model_backend import KEY, KilledError, ModelBackend, job
from support.backends.sample_reports import pod_energy
from wattloop_operator.domain.snapshot import Failure, WorkloadPhase
from wattloop_operator.driver import MAX_ROUNDS, reconcile
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.next_actions import next_actions

# 30 s of processor time: more than the usual limit on a busy machine.
pytestmark = pytest.mark.timeout(400)

STARTS: list[dict[str, Any]] = [
    {"schedule": "*/10 * * * *"},
    {"schedule": "*/15 * * * *", "timeZone": "Europe/Paris"},
    {"continuous": True},
    {"continuous": True, "maxRecurrences": 1},
    {"schedule": None},
]


class RecurringJob(RuleBasedStateMachine):
    """A job with random actions of operator, user, cluster and clock."""

    @initialize(
        starts=st.sampled_from(STARTS),
        concurrency=st.sampled_from(["Allow", "Forbid", "Replace"]),
        retries=st.integers(0, 2),
        mode=st.sampled_from(["Optimize", "Fixed"]),
        policy=st.sampled_from(["ThompsonSampling", "Zeus"]),
        histories=st.tuples(st.integers(0, 2), st.integers(0, 2)),
        timeout=st.sampled_from([0, 10]),
    )
    def apply(
        self,
        starts: dict[str, Any],
        concurrency: str,
        retries: int,
        mode: str,
        policy: str,
        histories: tuple[int, int],
        timeout: int,
    ) -> None:
        self.concurrency = concurrency
        self.backend = ModelBackend(
            job(
                **starts,
                concurrencyPolicy=concurrency,
                retries=retries,
                mode=mode,
                batchSize={"policy": policy},
                successfulRunsHistoryLimit=histories[0],
                failedRunsHistoryLimit=histories[1],
                activeDeadlineSeconds=1200,
            ),
            devices=1,
            agent_report_timeout_seconds=timeout,
        )
        self.request = 0
        self.sequence = 0
        self.store_lost = False

    @rule()
    def operator_reconciles(self) -> None:
        self.backend.reconcile()
        snapshot = self.backend.snapshot(KEY)
        assert next_actions(snapshot, self.backend.now).actions == (), f"actions remain after {MAX_ROUNDS} rounds"
        for recurrence in self.backend.recurrences.values():
            if recurrence.status.result is not None:
                key = recurrence.order
                assert key in self.backend.records
                late_usage = job_observations.late_usage_of(recurrence, self.backend.records[key])
                assert late_usage in (None, self.backend.late_usages.get(key))

    @rule(actions=st.integers(0, 6), after=st.booleans(), others_wait=st.booleans())
    def operator_is_killed(self, actions: int, after: bool, others_wait: bool) -> None:
        self.backend.actions_until_killed, self.backend.killed_after = actions, after
        with contextlib.suppress(KilledError):
            reconcile(self.backend, KEY, self.backend.clock, lambda: others_wait)
        self.backend.actions_until_killed = None

    @rule(seconds=st.sampled_from([1, 31, 61, 600, 1300, 90_000]))
    def time_passes(self, seconds: int) -> None:
        self.backend.advance(seconds)

    @rule(seconds=st.sampled_from([-3600, -60, 40_000_000]))
    def clock_jumps(self, seconds: int) -> None:
        self.backend.advance(seconds)

    @precondition(lambda self: self.pending())
    @rule(data=st.data())
    def process_starts(self, data: st.DataObject) -> None:
        self.backend.run_workload(data.draw(st.sampled_from(self.pending())))

    @precondition(lambda self: self.running())
    @rule(data=st.data(), metric=st.sampled_from([None, 0.5, 0.95]), finished=st.booleans(), joules=st.integers(1, 9))
    def process_reports(self, data: st.DataObject, metric: float | None, finished: bool, joules: int) -> None:
        self.sequence += 1
        self.backend.report(
            data.draw(st.sampled_from(self.running())),
            sequence=self.sequence,
            epoch=self.sequence,
            metric=metric,
            joules=joules * 1000.0,
            finished=finished,
        )

    @precondition(lambda self: self.running())
    @rule(data=st.data(), failure=st.sampled_from([None, *Failure]))
    def process_ends(self, data: st.DataObject, failure: Failure | None) -> None:
        self.backend.end_workload(data.draw(st.sampled_from(self.running())), failure, "the test ended it")

    @precondition(lambda self: self.backend.workloads)
    @rule(data=st.data(), joules=st.integers(1, 9), ended=st.booleans(), shared=st.booleans())
    def agents_report(self, data: st.DataObject, joules: int, ended: bool, shared: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.backend.workloads)))
        self.backend.report_energy(name, pod_energy(joules * 1000.0, joules, ended=ended, shared=shared))

    @precondition(lambda self: self.backend.workloads)
    @rule(data=st.data())
    def workload_is_deleted(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.backend.workloads)))
        # Only if the operator knows of its start. Otherwise a missing workload must be started.
        is_stated = self.backend.recurrences[name].status.workload_ref is not None
        if is_stated or name in self.backend.starts:
            del self.backend.workloads[name]

    @rule(suspended=st.booleans())
    def user_suspends_or_resumes(self, suspended: bool) -> None:
        self.backend.change_spec(suspend=suspended)

    @rule()
    def user_requests_a_run(self) -> None:
        self.request += 1
        self.backend.change_spec(runRequest=f"request {self.request}")

    @rule()
    def user_forgets_what_was_learned(self) -> None:
        self.request += 1
        self.backend.change_spec(learnSince=f"text {self.request}")

    @rule(threshold=st.sampled_from(["0.4", "0.9"]))
    def user_changes_the_target(self, threshold: str) -> None:
        objective = self.backend.job.to_wire()["spec"]["objective"]
        self.backend.change_spec(objective={**objective, "target": {"metric": "accuracy", "threshold": threshold}})

    @rule(percent=st.sampled_from([0, 50, 100]), sizes=st.sampled_from([[32, 64], [16, 32, 64, 128], [8, 64, 256]]))
    def user_changes_the_weight_and_the_candidates(self, percent: int, sizes: list[int]) -> None:
        objective = self.backend.job.to_wire()["spec"]["objective"]
        batch_size = {"default": 64, "candidates": sizes}
        self.backend.change_spec(objective={**objective, "energyWeightPercent": percent}, batchSize=batch_size)

    @rule()
    def store_is_lost(self) -> None:
        self.backend.lose_database()
        self.store_lost = True

    @invariant()
    def no_slot_and_no_workload_is_started_twice(self) -> None:
        backend = getattr(self, "backend", None)
        if backend is not None:
            assert all(count == 1 for count in backend.created.values()), backend.created
            assert all(count == 1 for count in backend.started.values()), backend.started
            slots = [(each.spec.index, each.spec.slot) for each in backend.recurrences.values()]
            assert len(set(slots)) == len(dict(slots)), "two slots share an index"

    @invariant()
    def no_outcome_is_lost(self) -> None:
        backend = getattr(self, "backend", None)
        if backend is None:
            return
        for key, record in backend.records.items():
            assert backend.outcomes[record.recurrence_name] == record.result, key
        if not self.store_lost:
            known_records = {record.recurrence_name for record in backend.records.values()}
            assert set(backend.outcomes) <= known_records | set(backend.recurrences)

    @invariant()
    def the_store_has_the_outcome_of_an_object_with_a_usage_that_it_had(self) -> None:
        """The agents' later reports change the usage of an object, and no record."""
        backend = getattr(self, "backend", None)
        if backend is not None:
            for recurrence in backend.recurrences.values():
                stored = backend.records.get(recurrence.order)
                if stored is not None:
                    assert stored.result == job_observations.record_of(recurrence).result
                    assert (stored.energy_joules, stored.time_seconds) in backend.usages[recurrence.metadata.name]

    @invariant()
    def forbid_allows_one_run_at_a_time(self) -> None:
        backend = getattr(self, "backend", None)
        if backend is None or self.concurrency == "Allow":
            return
        latest: dict[int, Any] = {}
        for each in backend.recurrences.values():
            if each.spec.index not in latest or each.spec.attempt > latest[each.spec.index].spec.attempt:
                latest[each.spec.index] = each
        running = [each for each in latest.values() if each.status.result is None]
        assert len(running) <= 1, [each.metadata.name for each in running]

    def teardown(self) -> None:
        """Every decision in the store is the same if it is made again."""
        backend = getattr(self, "backend", None)
        if backend is not None:
            assert [(each.verdict, each) for each in backend.replayed() if not each.is_equal] == []

    def pending(self) -> list[str]:
        return sorted(name for name, state in self.backend.workloads.items() if state.phase is WorkloadPhase.PENDING)

    def running(self) -> list[str]:
        return sorted(
            name
            for name, state in self.backend.workloads.items()
            if state.phase is WorkloadPhase.RUNNING and name in self.backend.recurrences
        )


TestRecurringJob = RecurringJob.TestCase
TestRecurringJob.settings = settings(max_examples=settings().max_examples // 4, stateful_step_count=40, deadline=None)


class TestModelBackend(BackendContract):
    @pytest.fixture
    def harness(self) -> BackendHarness:
        backend = ModelBackend(job())
        return BackendHarness(
            backend,
            KEY,
            write_progress=lambda name, epoch: backend.report(name, epoch=epoch, sequence=epoch, metric=0.5),
            starts=lambda name: backend.started[name],
        )
