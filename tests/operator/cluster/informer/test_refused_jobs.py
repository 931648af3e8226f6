"""Jobs whose template is too large: the cache keeps their last good version, and nothing of another."""

from typing import Any

from support.control_plane.job_manifest import job_manifest
from wattloop_operator.api.template_checks import MAX_NAMESPACE_TEMPLATE_BYTES
from wattloop_operator.cluster.informer.object_cache import ObjectCache


def body(name: str, version: int, *, size: int = 0, namespace: str = "team", **status: Any) -> dict[str, Any]:
    made = job_manifest(name)
    made["metadata"] |= {"namespace": namespace, "uid": f"uid-{name}", "resourceVersion": str(version), "generation": 1}
    made["spec"]["template"]["spec"]["template"]["spec"]["x"] = "x" * size
    return made | {"status": status}


def test_a_job_that_became_too_large_keeps_its_last_good_spec_and_its_newest_status() -> None:
    cache, key = ObjectCache(), ("team", "digits")
    assert cache.put_job(body("digits", 1))
    too_large = body("digits", 2, size=200_000, observedGeneration=1)
    too_large["metadata"]["generation"] = 2
    assert cache.put_job(too_large)
    assert not cache.put_job(too_large), "it is known"
    cached, refused = cache.jobs.get(key), cache.jobs.refused(key)
    assert cached.value.spec.template.spec.value["template"]["spec"]["x"] == ""
    assert (cached.value.metadata.generation, cached.value.status.observed_generation) == (1, 1)
    assert refused.problem.startswith("spec.template: found 200")
    assert "expected at most 131072 bytes of JSON" in refused.problem
    assert cache.put_job(body("digits", 3))
    assert cache.jobs.refused(key) is None


def test_a_job_of_a_later_version_keeps_its_last_good_spec_unless_its_status_cannot_be_read_either() -> None:
    cache, key = ObjectCache(), ("team", "digits")
    assert cache.put_job(body("digits", 1))
    later = body("digits", 2, observedGeneration=1)
    later["spec"]["laterField"] = 1
    assert cache.put_job(later)
    cached, refused = cache.jobs.get(key), cache.jobs.refused(key)
    assert (cached.version, cached.value.status.observed_generation) == (2, 1)
    assert "(spec.laterField: Extra inputs are not permitted)" in refused.problem
    assert cache.put_job(body("digits", 3, laterField=1))
    assert (cache.jobs.get(key), cache.jobs.known_version(key)) == (None, 3)
    assert cache.put_job(body("digits", 4))
    assert cache.jobs.refused(key) is None


def test_the_templates_of_a_namespace_are_bounded_together() -> None:
    cache, size = ObjectCache(), 120_000
    count = MAX_NAMESPACE_TEMPLATE_BYTES // (size + 1000)
    for number in range(count + 2):
        cache.put_job(body(f"job-{number}", number + 1, size=size))
    held = len(cache.jobs)
    assert count <= held < count + 2
    late = ("team", f"job-{count + 1}")
    refused = cache.jobs.refused(late)
    assert "expected at most 8388608 bytes in all RecurringTrainingJobs of a namespace" in refused.problem
    assert not cache.has_room_for(late, refused)
    assert cache.put_job(body("other", 900, size=size, namespace="other")), "another namespace has room"
    cache.remove_job(body("job-0", 901))
    assert cache.has_room_for(late, refused)
    cache.jobs.forget_refused(late)
    assert cache.put_job(body(late[1], count + 2, size=size))
    assert len(cache.jobs) == held + 1
