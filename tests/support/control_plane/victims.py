"""What must hold of an operator and of a victim's job beside hostile ones."""

from pathlib import Path

from kubernetes.dynamic import DynamicClient

from support.control_plane.memory_cgroup import MemoryCgroup
from support.control_plane.objects import RECURRING_TRAINING_JOB
from support.control_plane.operator_process import OperatorProcess
from support.control_plane.waiting import wait_until
from wattloop_operator.domain.names import JobKey


def await_reached(cluster: DynamicClient, key: JobKey, count: int) -> None:
    wait_until(
        cluster,
        RECURRING_TRAINING_JOB,
        lambda jobs: any(
            each["metadata"]["name"] == key.name and each.get("status", {}).get("totals", {}).get("reached") == count
            for each in jobs
        ),
        f"{count} runs of the victim",
        namespace=key.namespace,
    )


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
