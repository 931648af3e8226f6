"""Fuzz target: what ranks send to the plan service in sequence, together and across restarts of the operator."""

import asyncio
import json
import logging
import random
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from support.backends.model_backend import KEY, job
from support.fuzzing.logs import DefectLog
from support.fuzzing.pipelines import PipelineChecks, RecordingStore, running_commits, running_planner
from support.fuzzing.random_steps import random_step
from support.fuzzing.rank_steps import MESSAGES, STRAGGLER, Ranks, Step, parse_steps
from support.fuzzing.target import DefectError
from support.pipelines.registrations import CLOCKS, instructions_of, rank_registration
from support.reporting.node_api import NOW
from wattloop import threads
from wattloop.pipeline.plan_messages import MODES, Directive, RankReport
from wattloop_operator.api.frequency_plan import FrequencyPlanSpec
from wattloop_operator.api.meta import OwnerReference
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.reconcile.pipeline.pipeline_state import (
    GivenPlan,
    JobPlan,
    PipelineKey,
    PipelineState,
    PlanChoice,
)
from wattloop_operator.reconcile.pipeline.plan_object import plan_object
from wattloop_operator.reconcile.pipeline.plan_status import applied_plan, plan_status
from wattloop_operator.reconcile.pipeline.registrations import RegistrationConflictError
from wattloop_operator.reporting.interfaces import TooManyRequestsError
from wattloop_operator.reporting.pipeline_commits import Message, PipelineCommits, ReportOfRank
from wattloop_operator.store import open_store

# A bound for a busy machine; an answer takes a few milliseconds.
MAX_ANSWER_SECONDS = 20.0
SECONDS_PER_INPUT = 3600.0
MAX_PASSED_SECONDS = 60.0
# The answers of the API that are no directive: 409 and 429.
REFUSALS = (RegistrationConflictError, TooManyRequestsError)
OWNER = OwnerReference(api_version="wattloop.dev/v1alpha1", kind="RecurringTrainingJob", name="gpt", uid="job-uid")


def given_plans() -> tuple[GivenPlan | None, ...]:
    """No plan of the user, one that fits the ranks, one that does not, and one that does not exist."""
    stages = [
        {"operations": [{"instruction": text.split(":")[0], "megahertz": clock} for text in instructions_of(stage)]}
        for stage, clock in enumerate(CLOCKS[:2])
    ]
    spec = FrequencyPlanSpec.from_wire({"stages": stages, "timeSeconds": "1", "energyJoules": "90"})
    fits = GivenPlan("mine", "fits", spec)
    other = GivenPlan("mine", "other", spec.model_copy(update={"gpu_product": "NVIDIA H100"}))
    return None, fits, other, GivenPlan("mine", "missing", problem="FrequencyPlan team/mine does not exist")


GIVEN = given_plans()
CHOICES = (PlanChoice(), PlanChoice("Deadline", 1.2), PlanChoice("Cost", None, 0.5, 600.0))


class PlanServiceTarget:
    """The commits of the plan service with its store and its planner; an input is a sequence of steps.

    Each line is a step of `support.fuzzing.rank_steps`. A message is valid but for the fields that the line gives.
    ``plan`` changes what the job says of its plan, ``pass`` lets seconds pass, ``hold`` and ``go`` have the
    planner wait, ``restart`` ends the operator and starts another one, and ``end`` ends the attempt.

    Checks: each message gets a valid directive or a documented refusal; no error in the log; every thread lives; no
    restart is needed; the stored ranks never contradict each other, and have no energy that their GPUs cannot have; the
    FrequencyPlan and its status can be written; another job's pipeline does not change, and its rank gets its answer.
    """

    tokens = (
        b"register 0 {}\n", b"register 1 {}\n", b"register 2 {}\n", b"report 0 {}\n", b"report 1 {}\n",
        b"measured 0 {}\n", b"measured 1 {}\n", b"+", b"straggler 0 {}\n", b"pass 30\n", b"hold\n", b"go\n",
        b"restart\n", b"end\n", b'plan 0 {"enabled": false}\n', b'plan 0 {"given": 1}\n', b'plan 0 {"choice": 2}\n',
        b'{"factor": 1.5}', b'{"factor": 1e300}', b'{"energy": 1e14}', b'{"clocks": 1}',
        b'{"finished": true}', b'{"profiled": true}', b'"process": ',
        b'"mismatch": "m"', b'"refusal": "r"', b'"iterations": 0', b'"sequence": 9223372036854775807',
        b'"applied_directive": 9', b'"directive": 9', b'"iteration_seconds": 5e-324', b'"iteration_joules": 1e14',
        b'"clocks_megahertz": [900]', b'"instructions": ["forward:0:0"]', b'"gpu_product": "NVIDIA H100"',
        b'"data_parallel": 2, "ranks": 4', b'"measurements": []', b'"compared": []', b"NaN", b"1e999", b"-0.0"
    )  # fmt: skip

    def __init__(self) -> None:
        self._seconds = 0.0
        self._stack = ExitStack()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._store = self._stack.enter_context(open_store(f"sqlite:///{folder / 'wattloop.db'}"))
        self._log = self._stack.enter_context(DefectLog("wattloop_operator", "wattloop", level=logging.ERROR))
        own = decide(Snapshot(job()), Attempt(0, 0, "slot-0", NOW))
        job_ref = own.spec.job_ref.model_copy(update={"uid": "other-uid"})
        other = own.model_copy(update={"spec": own.spec.model_copy(update={"job_ref": job_ref})})
        self._recorded = RecordingStore(self._store)
        self._checks = PipelineChecks(self._store, own, other, self._now, self._recorded.newest.get)
        self._new, self._victim = (
            PipelineState(PipelineKey(spec.job_ref.uid, spec.index, spec.attempt), KEY.namespace, own.metadata.name)
            for spec in (own.spec, other.spec)
        )
        self._planner_may_run = threading.Event()
        self._running = ExitStack()
        self._commits = self._started()
        self._victim_reports = 0
        self._loop = asyncio.new_event_loop()

    def seeds(self) -> list[bytes]:
        """Pipelines from their registration to their end, and those that an earlier version failed on."""
        registered = "register 0 {}\nregister 1 {}\n"
        timed = "report 0 {}\nreport 1 {}\n"
        profiled = registered + timed * 2 + "measured 0 {}\nmeasured 1 {}\n"
        planned = profiled + timed * 2
        ends = 'report 0 {"finished": true}\n'
        replaced = 'measured 1 {"clocks": 1}\n'
        texts = [
            registered, profiled, planned, planned + ends, planned + ends + 'report 1 {"finished": true}\n',
            planned + replaced + timed, planned + "straggler 0 {}\n" + timed, planned + "restart\n" + timed,
            planned + 'plan 0 {"given": 1}\n' + timed * 3, registered + 'plan 0 {"given": 2}\n' + timed * 3,
            planned + 'plan 0 {"enabled": false}\n' + timed, planned + 'plan 0 {"choice": 1}\n' + timed,
            planned + 'register 1 {"process": "ffffffffffffffffffffffffffffffff"}\n' + timed * 2,
            profiled.replace("measured 0", "hold\nmeasured 0") + replaced + "go\n" + timed,
            planned.replace("\n", "\n+"), planned + "end\n" + timed, planned + "pass 60\n" * 4 + timed,
            planned + 'measured 1 {"factor": 1.5}\n' + timed, 'register 0 {}\nregister 1 {"microbatches": 3}\n',
            planned + ends + replaced + "report 1 {}\n" * 2,
            planned + 'report 0 {"iteration_joules": 1e14}\n' + timed,
            profiled.replace("measured 0 {}", 'measured 0 {"energy": 1e14}') + timed * 2,
            'register 0 {"data_parallel": 2}\nregister 2 {"data_parallel": 2}\n' + timed
        ]  # fmt: skip
        return [text.encode() for text in texts]

    def random_step(self, rng: random.Random) -> bytes:
        return random_step(rng)

    def check(self, data: bytes) -> None:
        self._log.clear()
        # Time passes, so that caches expire however long the run takes.
        self._seconds += SECONDS_PER_INPUT
        self._checks.reset()
        self._recorded.newest.pop(self._new.key, None)
        self._ranks, self._context = Ranks(), self._new
        self._checks.job_plan = JobPlan()
        self._commits.forget(self._new.key)
        self._planner_may_run.set()
        together: list[tuple[Step, Message]] = []
        for step in parse_steps(data):
            if step.verb not in MESSAGES:
                self._change(step)
                continue
            message = self._ranks.message(step)
            together += [] if message is None else [(step, message)]
            if together and not step.joined:
                self._send(together)
                together = []
        if together:
            self._send(together)
        self._wait_for_planner()
        self._check_stored()
        self._checks.check_other()
        self._check_victim()
        self._log.check()

    def close(self) -> None:
        self._planner_may_run.set()
        self._running.close()
        self._loop.close()
        self._stack.close()

    def _now(self) -> datetime:
        return NOW + timedelta(seconds=self._seconds)

    def _started(self) -> PipelineCommits:
        planner = running_planner(self._recorded, self._context_of, self._now, self._planner_may_run)
        self._planner = self._running.enter_context(planner)
        return self._running.enter_context(running_commits(self._recorded, self._now))

    def _context_of(self, _: str, name: str) -> PipelineState:
        return self._context if name == self._new.name else self._victim

    def _change(self, step: Step) -> None:
        match step.verb:
            case "plan":
                plan = self._checks.job_plan = _job_plan(step)
                new = replace(self._new, job_plan=plan)
                self._context = new
            case "pass":
                self._seconds += min(step.rank, MAX_PASSED_SECONDS)
            case "hold":
                self._planner_may_run.clear()
            case "go":
                self._planner_may_run.set()
            case "end":
                self._commits.forget(self._new.key)
            case "restart":
                self._wait_for_planner()
                self._running.close()
                self._commits = self._started()

    def _send(self, together: Sequence[tuple[Step, Message]]) -> None:
        answers = self._answers([message for _, message in together])
        for (step, _), answer in zip(together, answers, strict=True):
            if isinstance(answer, Directive):
                self._ranks.receive(step.rank, answer)
            elif isinstance(answer, BaseException):
                if not isinstance(answer, REFUSALS):
                    raise DefectError(f"{step.verb} {step.rank}: {type(answer).__name__}: {answer}") from answer
            elif step.verb != STRAGGLER:
                raise DefectError(f"{step.verb} {step.rank} has no directive")
        # With others sent at the same time, the answer may be that of an earlier state.
        only = answers[0] if len(answers) == 1 and isinstance(answers[0], Directive) else None
        if self._planner_may_run.is_set():
            self._checks.check(json.dumps({} if only is None else only.to_json()).encode())

    def _answers(self, messages: Sequence[Message]) -> list[Directive | BaseException | None]:
        async def sent() -> list[Directive | BaseException | None]:
            waiting = [self._commits.committed(self._context, each) for each in messages]
            answered = asyncio.gather(*waiting, return_exceptions=True)
            return list(await asyncio.wait_for(answered, MAX_ANSWER_SECONDS))

        try:
            return self._loop.run_until_complete(sent())
        except TimeoutError as error:
            raise DefectError(f"no answer within {MAX_ANSWER_SECONDS:g} s") from error
        finally:
            if problem := threads.problem():
                raise DefectError(problem)

    def _wait_for_planner(self) -> None:
        """Wait until the planner is through, so that what it plans changes no later input."""
        self._planner_may_run.set()
        end = time.monotonic() + MAX_ANSWER_SECONDS
        while not self._planner.has_planned:
            if time.monotonic() >= end:
                raise DefectError(f"the planner works for more than {MAX_ANSWER_SECONDS:g} s")
            time.sleep(0.001)

    def _check_stored(self) -> None:
        """Check that what the operator writes of the pipeline can be written."""
        state = self._store.pipelines.read_without_measurements(self._new.key)
        if state is None:
            return
        newest = self._recorded.newest.get(self._new.key)
        if newest is not None and (newest.ranks, newest.directive) != (state.ranks, state.directive):
            raise DefectError("the store has other ranks or another directive than the service")
        plan = plan_object(state, OWNER)
        if plan is not None:
            plan_status(state, plan, ended=False, now=self._now()).to_wire()
        applied_plan(state, "" if plan is None else plan.metadata.name).to_wire()

    def _check_victim(self) -> None:
        self._victim_reports += 1
        report = RankReport(rank_registration(0).process, self._victim_reports, 0, self._victim_reports)
        context, self._context = self._context, self._victim
        (answer,) = self._answers([ReportOfRank(0, report)])
        self._context = context
        if not isinstance(answer, Directive) or not answer.known or answer.mode not in MODES:
            raise DefectError(f"a rank of another pipeline got {answer!r}")


def _job_plan(step: Step) -> JobPlan:
    given, choice = step.fields.get("given", 0), step.fields.get("choice", 0)
    return JobPlan(
        step.fields.get("enabled", True) is True,
        CHOICES[choice % len(CHOICES)] if type(choice) is int else CHOICES[0],
        GIVEN[given % len(GIVEN)] if type(given) is int else None,
    )
