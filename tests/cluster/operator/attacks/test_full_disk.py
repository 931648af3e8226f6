"""The disk of the operator's SQLite is full: recurrences wait, nothing false is stored or shown, and all goes on."""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes.dynamic import DynamicClient

from support.agents.agent_fixture import until
from support.control_plane.driven_job import first_of
from support.control_plane.fixtures import Ended, JobOf, MakeJob, Operators, RecurrencesOf, Train
from support.control_plane.kubelet import Kubelet
from support.control_plane.victims import assert_works, await_reached
from wattloop_operator.domain.names import JobKey
from wattloop_operator.store import open_store


@pytest.fixture
def small_disk() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="wattloop-disk-") as name:
        folder = Path(name) / "disk"
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "wattloop", str(folder)]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            pytest.skip("this user may not mount a small file system")
        yield folder
        subprocess.run(["umount", folder], check=True)


@contextlib.contextmanager
def filled(folder: Path) -> Iterator[None]:
    """No byte is free on the disk of a folder."""
    filling = folder / "filling"
    with contextlib.suppress(OSError), filling.open("wb", buffering=0) as stream:
        while stream.write(b"x" * 4096):
            """Until it is full."""
    try:
        yield
    finally:
        filling.unlink()


@pytest.mark.timeout(600)
def test_recurrences_wait_for_space_on_the_disk_of_the_store_and_end_with_their_own_figures(
    small_disk: Path,
    operators: Operators,
    make_job: MakeJob,
    job_of: JobOf,
    recurrences_of: RecurrencesOf,
    train: Train,
    ended: Ended,
    kubelet: Kubelet,
    cluster: DynamicClient,
) -> None:
    url = f"sqlite:///{small_disk}/wattloop.db"
    start = operators(f"--database={url}")
    operator = start()
    running, gone = make_job("running"), make_job("gone")
    trainings = {key: train(key, first_of(key)) for key in (running, gone)}
    assert [each.report(1.0, 0.5) is not None for each in trainings.values()] == [True, True]

    def reached(key: JobKey) -> int:
        return int(((job_of(key).get("status") or {}).get("totals") or {}).get("reached", 0))

    with filled(small_disk):
        waiting = make_job("waiting")
        for training in trainings.values():
            training.timeout_seconds = 1.0
            training.report(9.0, 0.95, finished=True)
        operator.await_line("cannot ")
        kubelet.succeed(trainings[gone].pod)
        ended(gone, first_of(gone))
        operator.await_line("/waiting: ")
        assert operator.health("/healthz").status_code == 200
        assert [reached(key) for key in (running, gone, waiting)] == [0, 0, 0]
        assert [each.get("status", {}).get("result") for each in recurrences_of(gone)] == [None]
        assert recurrences_of(waiting) == []
        # Restarted, it waits as well.
        operator.stop()
        operator = start()
    trainings[running].timeout_seconds = 60.0
    until(lambda: trainings[running].report(9.0, 0.95, finished=True) is not None, "its last report is delivered")
    kubelet.succeed(trainings[running].pod)
    again, new = train(gone, first_of(gone, 1)), train(waiting, first_of(waiting))
    for training in (again, new):
        training.reach_target()
        kubelet.succeed(training.pod)
    for key in (running, gone, waiting):
        await_reached(cluster, key, 1)
    assert_works(operator)
    operator.stop()
    # What ended unseen is not learned from; its figures are those that were stored.
    unseen, _ = recurrences_of(gone)
    assert (unseen["status"]["result"], unseen["status"]["epochs"]) == ("Disrupted", "1")
    with open_store(url) as store:
        results = {
            key.name: [str(each.result) for each in store.observations.of_name(key.namespace, key.name)]
            for key in (running, gone, waiting)
        }
    assert results == {"running": ["Reached"], "gone": ["Disrupted", "Reached"], "waiting": ["Reached"]}
    (record,) = recurrences_of(running)
    assert (record["status"]["epochs"], record["status"]["metric"]) == ("9", "0.95")
