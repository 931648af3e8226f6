"""FrequencyPlans on a real API server, with exactly the operator's rights."""

import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.control_plane.commands import ClusterCommand
from support.control_plane.fixtures import MakeJob
from support.control_plane.in_process_operator import InProcessOperator
from support.control_plane.stored_pipeline import StoredPipeline
from support.pipelines.simulated_ranks import NEW_STATE, SimulatedOperator, ranks_of, run_until_planned
from wattloop_operator.cluster.frequency_plans import KEPT_PLANS, FrequencyPlanWriter
from wattloop_operator.cluster.reported_objects import JobSettings
from wattloop_operator.domain.names import JOB_LABEL, JobKey
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.pipeline.pipeline_state import JobPlan
from wattloop_operator.store import Store

NO_LIMITS = {"mode": "None"}


@pytest.fixture
def pipeline(operator: InProcessOperator, store: Store, make_job: MakeJob) -> StoredPipeline:
    return StoredPipeline(operator, store, make_job(power=NO_LIMITS))


def plan_available(kubectl: ClusterCommand, job: JobKey, namespace: str) -> tuple[str, str]:
    """Status and reason of the job's condition about its plan."""
    conditions = kubectl.json("get", "rtj", job.name, namespace=namespace)["status"]["conditions"]
    (found,) = [each for each in conditions if each["type"] == "PlanAvailable"]
    return found["status"], found["reason"]


def simulated(**shape: int) -> SimulatedOperator:
    """Ranks that run a plan."""
    found = SimulatedOperator(NEW_STATE)
    run_until_planned(found, ranks_of(2, **shape))
    return found


def plans(kubectl: ClusterCommand, namespace: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = kubectl.json("get", "fplan", namespace=namespace)["items"]
    return found


def condition(plan: dict[str, Any], kind: str) -> dict[str, Any]:
    (found,) = [each for each in plan["status"]["conditions"] if each["type"] == kind]
    return dict(found)


def test_a_planned_pipeline_gets_a_plan_that_its_job_owns_and_its_recurrence_names(
    pipeline: StoredPipeline, kubectl: ClusterCommand, namespace: str
) -> None:
    running = simulated()
    pipeline.now = running.now
    pipeline.store_state(running.state)
    pipeline.write()
    (plan,) = plans(kubectl, namespace)
    (owner,) = plan["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("RecurringTrainingJob", pipeline.pipeline.job_uid)
    assert plan["status"]["recurrence"] == pipeline.recurrence.metadata.name
    assert condition(plan, "InForce")["status"] == "True"
    trec = kubectl.json("get", "trec", pipeline.recurrence.metadata.name, namespace=namespace)
    applied = trec["status"]["frequencyPlan"]
    assert (applied["name"], applied["mode"]) == (plan["metadata"]["name"], "Plan")
    # The plan has run too briefly to be compared with free clocks.
    assert "savingPercent" not in applied
    assert float(plan["status"]["plannedSavingPercent"]) > 0
    # The controller's next write keeps what this writer knows.
    pipeline.operator.reconcile(pipeline.key)
    trec = kubectl.json("get", "trec", pipeline.recurrence.metadata.name, namespace=namespace)
    assert trec["status"]["frequencyPlan"] == applied
    job = kubectl.json("get", "rtj", pipeline.key.name, namespace=namespace)
    available = condition(job, "PlanAvailable")["message"]
    assert available == f"recurrence {pipeline.recurrence.metadata.name}: FrequencyPlan {applied['name']}"
    columns = kubectl("get", "fplan", "-o", "wide", namespace=namespace).splitlines()
    assert columns[0].split()[:2] == ["NAME", "GPU"]
    assert "PLANNED (%)" in columns[0]
    assert f"{float(plan['status']['plannedSavingPercent']):g}" in columns[1]


def test_a_pipeline_whose_status_cannot_be_written_delays_no_other(
    pipeline: StoredPipeline,
    make_job: MakeJob,
    kubectl: ClusterCommand,
    namespace: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = simulated()
    pipeline.now = running.now
    frontier = running.state.frontier
    # More joules than any status may state, as an earlier version stored them.
    points = tuple(replace(each, energy_joules=1e16) for each in frontier.points)
    profile = replace(running.state.profile, key=replace(running.state.profile.key, job_uid="hostile"))
    pipeline.store_state(replace(running.state, frontier=replace(frontier, points=points), profile=profile))
    hostile = pipeline.recurrence.metadata.name
    victim = StoredPipeline(pipeline.operator, pipeline.store, make_job("victim", power=NO_LIMITS))
    victim.store_state(running.state)
    # The cache has the recurrences of both, as that of a running operator.
    pipeline.operator.cache.put_recurrence(kubectl.json("get", "trec", hostile, namespace=namespace))
    for _ in range(2):
        pipeline.writer.write()
    running_plans = {each["metadata"]["labels"][JOB_LABEL]: each for each in plans(kubectl, namespace)}
    assert running_plans["victim"]["status"]["recurrence"] == victim.recurrence.metadata.name
    (record,) = [each for each in caplog.records if hostile in each.getMessage()]
    assert "its FrequencyPlan" in record.getMessage()


def test_an_unchanged_pipeline_is_not_written_again_and_a_silent_rank_is(
    pipeline: StoredPipeline, kubectl: ClusterCommand, namespace: str
) -> None:
    running = simulated()
    pipeline.now = running.now
    pipeline.store_state(running.state)
    pipeline.write()
    (before,) = plans(kubectl, namespace)
    pipeline.now += timedelta(seconds=5)
    pipeline.write()
    (after,) = plans(kubectl, namespace)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    pipeline.now += timedelta(seconds=60)
    pipeline.write()
    (silent,) = plans(kubectl, namespace)
    assert condition(silent, "RankDead")["message"] == "ranks 0, 1 sent no report for 30 s"
    assert condition(silent, "InForce")["reason"] == "RankDead"
    # A restarted operator continues with the same object.
    pipeline.writer = FrequencyPlanWriter(
        pipeline.operator.api, pipeline.operator.cache, pipeline.store.pipelines, lambda: pipeline.now
    )
    pipeline.write()
    (again,) = plans(kubectl, namespace)
    assert again["metadata"]["resourceVersion"] == silent["metadata"]["resourceVersion"]


def test_of_many_frontiers_the_oldest_plans_of_the_job_are_deleted(
    pipeline: StoredPipeline, kubectl: ClusterCommand, namespace: str
) -> None:
    running = simulated()
    pipeline.now = running.now
    frontier = running.state.frontier
    assert frontier is not None
    kubectl.apply(
        {
            "apiVersion": "wattloop.dev/v1alpha1",
            "kind": "FrequencyPlan",
            "metadata": {"name": "mine", "labels": {"wattloop.dev/job": pipeline.key.name}},
            "spec": {"stages": [{"operations": [{"instruction": "forward", "megahertz": 900}]}]},
        },
        namespace=namespace,
    )
    for number in range(KEPT_PLANS + 2):
        changed = replace(frontier, profile_digest=f"{number:032x}", blocking_watts=50.0 + number)
        pipeline.store_state(replace(running.state, frontier=changed))
        pipeline.write()
    names = {plan["metadata"]["name"] for plan in plans(kubectl, namespace)}
    assert "mine" in names
    assert len(names) == KEPT_PLANS + 1


def test_a_job_that_names_a_plan_of_the_user_runs_it_and_states_how(
    operator: InProcessOperator, store: Store, make_job: MakeJob, kubectl: ClusterCommand, namespace: str
) -> None:
    job = make_job(power=NO_LIMITS | {"frequencyPlan": {"name": "mine"}})
    pipeline = StoredPipeline(operator, store, job)
    missing = JobSettings(operator.api, time.monotonic).plan_of(TrainingAttempt.of(pipeline.recurrence, None)).given
    assert f"FrequencyPlan {namespace}/mine does not exist" in missing.problem
    waiting = SimulatedOperator(replace(NEW_STATE, job_plan=JobPlan(given=missing)))
    run_until_planned(waiting, ranks_of(1, stages=1), rounds=8)
    pipeline.now = waiting.now
    pipeline.store_state(waiting.state)
    pipeline.write()
    pipeline.operator.reconcile(job)
    assert plan_available(kubectl, job, namespace) == ("False", "FrequencyPlanNotFound")
    events = kubectl.json("get", "events", namespace=namespace)["items"]
    assert "FrequencyPlanNotFound" in {event["reason"] for event in events}
    operations = [{"instruction": "forward", "megahertz": 900}, {"instruction": "backward", "megahertz": 1100}]
    spec = {"stages": [{"operations": operations * 2}], "timeSeconds": "1.5", "energyJoules": "200"}
    kubectl.apply(
        {"apiVersion": "wattloop.dev/v1alpha1", "kind": "FrequencyPlan", "metadata": {"name": "mine"}, "spec": spec},
        namespace=namespace,
    )
    given = JobSettings(operator.api, time.monotonic).plan_of(TrainingAttempt.of(pipeline.recurrence, None)).given
    assert given.problem == ""
    running = SimulatedOperator(replace(NEW_STATE, job_plan=JobPlan(given=given)))
    run_until_planned(running, ranks_of(1, stages=1))
    pipeline.now = running.now
    pipeline.store_state(running.state)
    pipeline.write()
    pipeline.operator.reconcile(job)
    assert plan_available(kubectl, job, namespace) == ("True", "Planned")
    (plan,) = plans(kubectl, namespace)
    assert plan["metadata"]["name"] == "mine"
    assert plan["status"]["plannedSeconds"] == "1.5"
    assert plan["status"]["recurrence"] == pipeline.recurrence.metadata.name
