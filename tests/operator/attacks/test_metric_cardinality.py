"""A tenant with thousands of jobs, recurrences and hostile names, beside a victim's metrics."""

import time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from support.control_plane.job_manifest import job_manifest
from support.test_sets.parameters import exhaustive_after
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.memory_shares import OBJECTS
from wattloop_operator.telemetry.operator_metrics import BOUNDS, ESTIMATES, StateCollector

NUMBERS = dict.fromkeys(("value", "low", "high"), "1")
STATUS: dict[str, Any] = {
    "active": [f"recurrence-{number}" for number in range(20)],
    "best": {"batchSize": 64},
    "totals": {"reached": 10**6, "failed": 10**6, "lost": 1, "gpuEnergyJoules": "4000", "durationSeconds": "20"},
    "savings": [{"name": str(name), "unit": "J", "text": "", **NUMBERS} for name in ESTIMATES],
}
# Active, best, reached, failed, lost, energy, time and the estimates.
MAX_SAMPLES_OF_A_JOB = 7 + len(ESTIMATES) * len(BOUNDS)
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def job(namespace: str, name: str, number: int) -> dict[str, Any]:
    body = job_manifest(name, batchSize={"default": 64, "candidates": [64]}) | {"status": STATUS}
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "resourceVersion": str(number + 1)}
    return body | {"metadata": metadata}


def scraped(jobs: list[RecurringTrainingJob]) -> tuple[Samples, float, int]:
    """The samples of jobs by name and labels, the processor time of the scrape, and its size."""
    registry = CollectorRegistry()
    registry.register(
        StateCollector(
            jobs=lambda: jobs,
            queue_depth=lambda: 0,
            watch_ages_seconds=dict,
            is_leader=lambda: True,
            is_database_up=lambda: True,
        )
    )
    began = time.thread_time()
    text = generate_latest(registry)
    seconds = time.thread_time() - began
    families = text_string_to_metric_families(text.decode())
    samples = {
        (each.name, tuple(sorted(each.labels.items()))): each.value
        for family in families
        for each in family.samples
        if "namespace" in each.labels
    }
    return samples, seconds, len(text)


@pytest.mark.parametrize("part", exhaustive_after([50, 1]))
def test_a_namespace_has_metrics_for_as_many_jobs_as_its_share_of_the_memory_and_a_victims_are_the_same(
    part: int,
) -> None:
    cache = ObjectCache(OBJECTS // part)
    cache.put_job(job("team", "victim", 0))
    (victim,) = (each.value for each in cache.jobs.all())
    before, seconds_before, _ = scraped([victim])
    jobs = 0
    while cache.put_job(job("hostile", f"job-{jobs}", jobs)) and not cache.crowded("hostile"):
        jobs += 1
    stored = [each.value for each in cache.jobs.all()]
    during, seconds, size = scraped(stored)
    print(
        f"{jobs} jobs: {len(during)} samples, {size / 1e6:.1f} MB, {seconds:.2f} s of processor time "
        f"(the victim alone: {len(before)}, {seconds_before * 1000:.0f} ms)"
    )
    assert jobs < 5_000 / part + 1
    assert len(during) <= MAX_SAMPLES_OF_A_JOB * len(stored)
    assert {key: value for key, value in during.items() if ("namespace", "team") in key[1]} == before
    # Recurrences, batch sizes and names of metrics are values, and no labels.
    assert {name for _, labels in during for name, _ in labels} == {"namespace", "job", "reached"}


def test_line_feeds_and_quotes_in_labels_are_part_of_their_value() -> None:
    forged = 'wattloop_job_active_recurrences{job="victim",namespace="team"} 99'
    names = [f'a"}} 1\n{forged}', "\\", '"', "\n", "\\n", "é\u2028"]
    cache = ObjectCache()
    cache.put_job(job("team", "victim", 0))
    for number, name in enumerate(names):
        cache.put_job(job("hostile", name, number))
    samples, _, _ = scraped([each.value for each in cache.jobs.all()])
    active = {
        dict(labels)["job"]: count
        for (name, labels), count in samples.items()
        if name == "wattloop_job_active_recurrences"
    }
    assert active == dict.fromkeys(["victim", *names], 20.0)
