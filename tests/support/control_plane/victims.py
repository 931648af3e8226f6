"""What must hold of an operator and of a victim's job beside hostile ones."""

from pathlib import Path

from kubernetes.dynamic import DynamicClient

from support.control_plane.memory_cgroup import MemoryCgroup
from support.control_plane.objects import RECURRING_TRAINING_JOB
from support.control_plane.operator_process import OperatorProcess
from support.control_plane.waiting import Object, wait_until
from wattloop_operator.domain.names import JobKey


def await_reached(cluster: DynamicClient, key: JobKey, count: int = 1) -> Object:
    """The status of a job once this number of its recurrences has reached the target."""
    found: Object = wait_until(
        cluster,
        RECURRING_TRAINING_JOB,
        lambda jobs: next((each["status"] for each in jobs if reached_of(each) == count), None),
        f"{count} recurrences of {key} to reach the target",
        namespace=key.namespace,
        field_selector=f"metadata.name={key.name}",
    )
    return found


def reached_of(job: Object) -> int:
    """How many recurrences of a job have reached the target by its status."""
    found: int = ((job.get("status") or {}).get("totals") or {}).get("reached", 0)
    return found


def peak_memory_bytes(operator: OperatorProcess) -> int:
    status = Path(f"/proc/{operator.pid}/status").read_text(encoding="ascii")
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")))


def assert_works(operator: OperatorProcess) -> None:
    for path in ("/healthz", "/readyz"):
        answer = operator.health(path)
        assert answer.status_code == 200, answer.text


def assert_within_memory(
    operator: OperatorProcess, container: MemoryCgroup, cluster: DynamicClient, key: JobKey, count: int
) -> None:
    """So many runs of the victim end, and the operator works in half of its memory."""
    await_reached(cluster, key, count)
    assert_works(operator)
    assert peak_memory_bytes(operator) < container.limit_bytes / 2
