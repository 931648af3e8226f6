"""Waiting for what an attempt has come to."""

from collections.abc import Callable

from kubernetes.dynamic import DynamicClient

from support.control_plane.objects import RECURRING_TRAINING_JOB
from support.control_plane.waiting import Object, wait_until
from support.load_aware_clock import LoadAwareClock
from support.node.digits import await_recurrences

SLOWEST_SECONDS = 300.0
"""How long anything that takes a few seconds may take on a machine that does much else."""
CAUSE_NAMED_WITHIN_SECONDS = 60.0
"""The promised bound; it took at most 10 s at nine times the load that the machine can handle."""


def attempt_of(recurrences: list[Object], job: str, index: int, attempt: int) -> Object | None:
    wanted = (job, index, attempt)
    for each in recurrences:
        spec = each["spec"]
        if (spec["jobRef"]["name"], spec["index"], spec["attempt"]) == wanted:
            return each
    return None


def observations_of(status: Object) -> int:
    """How much the policy of a job has learned, by the job's status."""
    return sum(arm.get("observations", 0) for arm in status.get("arms", []))


def await_status(
    cluster: DynamicClient,
    namespace: str,
    job: str,
    holds: Callable[[Object], bool],
    what: str,
    timeout_seconds: float = SLOWEST_SECONDS,
) -> Object:
    """Waits until a job's status is as wanted: it is written after that of its recurrence. Returns it."""

    def found(jobs: list[Object]) -> Object | None:
        statuses = [each.get("status", {}) for each in jobs if each["metadata"]["name"] == job]
        return next((status for status in statuses if holds(status)), None)

    return wait_until(
        cluster, RECURRING_TRAINING_JOB, found, f"{job} {what}", namespace=namespace, timeout_seconds=timeout_seconds
    )


def await_observations(cluster: DynamicClient, namespace: str, job: str, observations: int) -> None:
    """Waits until a job's policy has learned so much."""

    def learned(status: Object) -> bool:
        return observations_of(status) == observations

    await_status(cluster, namespace, job, learned, f"to have learned from {observations} observations")


def is_counted(status: Object, recurrences: int) -> bool:
    """Whether so many recurrences are over, and the job's status knows it."""
    counts = status.get("totals", {})
    return bool(counts.get("reached", 0) + counts.get("failed", 0) == recurrences)


def saving_of(status: Object, name: str) -> Object:
    """The entry of this name of a job's savings; empty if there is none yet."""
    return next((each for each in status.get("savings", []) if each["name"] == name), {})


def await_condition(
    cluster: DynamicClient,
    namespace: str,
    job: str,
    type_: str,
    *,
    status: str,
    message: str,
    index: int = 0,
    attempt: int = 0,
) -> Object:
    """Waits until an attempt's condition has this status, and its reason or message these words.

    On a machine that does much else it may come later than `CAUSE_NAMED_WITHIN_SECONDS`, by the share of the time in
    which this process waits for a processor as well.
    """

    def found(recurrences: list[Object]) -> Object | None:
        recurrence = attempt_of(recurrences, job, index, attempt)
        for condition in recurrence.get("status", {}).get("conditions", []) if recurrence else []:
            words = f"{condition['reason']}: {condition.get('message', '')}"
            if condition["type"] == type_ and condition["status"] == status and message in words:
                print(f"{type_} of {job}: {words} (after {clock.seconds():.0f} s)")
                return condition
        return None

    what = f"attempt {attempt} of {job} {index} to have the condition {type_}={status} that says {message!r}"
    with LoadAwareClock() as clock:
        condition = await_recurrences(cluster, namespace, found, what=what, timeout_seconds=SLOWEST_SECONDS)
        assert clock.seconds() < CAUSE_NAMED_WITHIN_SECONDS, f"not within {CAUSE_NAMED_WITHIN_SECONDS:.0f} s: {what}"
    return condition


def await_epoch(
    cluster: DynamicClient, namespace: str, job: str, *, index: int = 0, attempt: int = 0, epoch: float = 1.0
) -> Object:
    """Waits until an attempt has reported so many epochs."""

    def found(recurrences: list[Object]) -> Object | None:
        recurrence = attempt_of(recurrences, job, index, attempt)
        if recurrence is None or float(recurrence.get("status", {}).get("progress", {}).get("epoch", 0)) < epoch:
            return None
        return recurrence

    what = f"epoch {epoch} of attempt {attempt} of {job} {index}"
    return await_recurrences(cluster, namespace, found, what=what, timeout_seconds=SLOWEST_SECONDS)
