"""The model of an attempt becomes current as a whole or not at all, whatever kills its process."""

import itertools
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.forked_process import forked
from support.reporting.report_server import ReportServer, answering
from wattloop import Run
from wattloop.run.publishing import CHUNK_BYTES, DESCRIPTION, MarkerStore, PublishError, RunOutput, publish_folder
from wattloop.wire.environment import RunEnvironment

# Also the verdict that another rank than 0 waits for.
REACHED = answering(200, b'{"stop": false, "reason": "", "reached": true, "decided_epoch": 0, "stop_epoch": 1}')


def model(directory: Path, name: str, **files: str) -> Path:
    """The files of an attempt."""
    folder = directory / "attempts" / name
    for file, content in files.items():
        path = folder / file.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def output_of(location: str, current: str, store: MarkerStore | None = None) -> RunOutput:
    return RunOutput(RunEnvironment("a/digits", "digits-0", output_directory=location, current_model=current), store)


def current_recurrence(directory: Path) -> object:
    return json.loads((directory / "current" / DESCRIPTION).read_text())["recurrence"]


def test_a_published_folder_is_what_current_leads_to(tmp_path: Path) -> None:
    for name in ("digits-0", "digits-1"):
        folder = model(tmp_path, name, weights=name, parts__layer_0="0", parts__layer_1="1")
        digest = publish_folder(folder, tmp_path / "current", {"recurrence": name})
        assert (tmp_path / "current").readlink() == Path("attempts", name)
        assert (tmp_path / "current" / "weights").read_text() == name
        described = json.loads((tmp_path / "current" / DESCRIPTION).read_text())
        assert described == {"recurrence": name, "digest": digest}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attempts", "current"]
    assert (tmp_path / "attempts" / "digits-0" / "weights").read_text() == "digits-0"


def test_the_digest_is_of_names_and_contents_alone(tmp_path: Path) -> None:
    def digest(name: str, **files: str) -> str:
        return publish_folder(model(tmp_path, name, **files), tmp_path / "current", {"recurrence": name})

    one = digest("a", weights="1", more="2")
    assert digest("b", weights="1", more="2") == one
    assert digest("a", weights="1", more="2") == one
    assert len({one, digest("c", weights="1", more="3"), digest("d", weights="1", less="2"), digest("e", m="12")}) == 4


def published_or_killed(folder: Path, current: Path, point: int) -> int:
    """Publish in a process that kills itself before its n-th audited call of the operating system.

    Each open, rename, link and removal is one.
    """

    def publish() -> int:
        points = itertools.count(1)

        def hook(event: str, _arguments: object) -> None:
            if event.split(".", maxsplit=1)[0] in ("open", "os", "pathlib") and next(points) == point:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        publish_folder(folder, current, {"recurrence": folder.name})
        # This process makes more calls after it.
        os._exit(0)

    output = folder.parents[1] / "output"
    return os.waitstatus_to_exitcode(os.waitpid(forked(publish, output, output), 0)[1])


@pytest.mark.processes
def test_a_kill_at_any_call_leaves_the_former_model_or_the_new_one_current(tmp_path: Path) -> None:
    publish_folder(model(tmp_path, "old", weights="old"), tmp_path / "current", {"recurrence": "old"})
    seen = []
    for point in range(1, 200):
        folder = model(tmp_path, f"new-{point}", weights="new", parts__layer="1")
        code = published_or_killed(folder, tmp_path / "current", point)
        recurrence = current_recurrence(tmp_path)
        assert recurrence in ("old", f"new-{point}")
        assert {path.name for path in (tmp_path / "current").iterdir()} - {"parts"} == {"weights", DESCRIPTION}
        seen.append(recurrence == "old")
        if code == 0:
            break
        assert code == -signal.SIGKILL
        # What the killed process left does not stop another one.
        publish_folder(tmp_path / "attempts" / "old", tmp_path / "current", {"recurrence": "old"})
    assert code == 0
    assert seen.index(False) > 5


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: None, "does not exist: save the model into run.output_dir"),
        (lambda folder: folder.mkdir(parents=True), "is empty: save the model into run.output_dir"),
        (lambda folder: (folder.mkdir(parents=True), os.mkfifo(folder / "pipe")), "pipe is no regular file"),
        (lambda folder: (model(folder.parents[1], "a", w="1"), (folder.parents[1] / "current").mkdir()), "is a folder"),
    ],
)
def test_what_cannot_be_published_is_said_and_changes_nothing(
    tmp_path: Path, spoil: Callable[[Path], object], message: str
) -> None:
    folder = tmp_path / "attempts" / "a"
    spoil(folder)
    with pytest.raises(PublishError, match=message):
        publish_folder(folder, tmp_path / "current", {})
    assert not (tmp_path / "current").is_symlink()


def test_a_process_that_was_started_again_does_not_change_what_its_attempt_has_published(tmp_path: Path) -> None:
    location, current = str(tmp_path / "attempts" / "a"), str(tmp_path / "current")
    first = output_of(location, current)
    first.create()
    Path(first.location, "weights").write_text("1")
    first.publish({})
    second = output_of(location, current)
    assert second.location == f"{location}-2"
    second.create()
    assert (tmp_path / "current" / "weights").read_text() == "1"


def test_large_files_keep_the_attempt_alive(tmp_path: Path) -> None:
    beats: list[int] = []
    folder = model(tmp_path, "a", weights="x" * (3 * CHUNK_BYTES))
    publish_folder(folder, tmp_path / "current", {}, lambda: beats.append(1))
    assert len(beats) == 3


@given(st.lists(st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=3), max_size=4))
def test_a_model_from_an_object_store_has_a_marker(names: list[str]) -> None:
    store = Memory()
    output = output_of("s3://models/digits/attempts/a", "s3://models/digits/current.json", store)
    output.create()
    published = output.publish({"names": names})
    ((url, content),) = store.objects.items()
    assert url == "s3://models/digits/current.json"
    facts = {"job": "a/digits", "recurrence": "digits-0", "names": names}
    assert json.loads(content) == {"path": "s3://models/digits/attempts/a", **facts}
    assert (published.folder, len(published.digest)) == ("a", 32)


class Memory:
    """A store of objects in memory."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def read(self, url: str) -> bytes | None:
        return self.objects.get(url)

    def write(self, url: str, content: bytes) -> None:
        self.objects[url] = content


class Unwritable(Memory):
    """A store that refuses writes."""

    def write(self, url: str, content: bytes) -> None:
        raise PermissionError(13, "denied")


def variables(server: ReportServer, directory: str) -> dict[str, str]:
    """The environment of an attempt that publishes."""
    current = "current.json" if "://" in directory else "current"
    return {
        "WATTLOOP_JOB": "team/digits",
        "WATTLOOP_RECURRENCE": "digits-0",
        "WATTLOOP_TARGET_METRIC": "accuracy",
        "WATTLOOP_TARGET_THRESHOLD": "0.9",
        "WATTLOOP_REPORT_URL": server.url,
        "WATTLOOP_OUTPUT_DIR": f"{directory}/attempts/digits-0",
        "WATTLOOP_CURRENT_MODEL": f"{directory}/{current}",
    }


def train(environment: dict[str, str], metric: float = 0.95, *, fails: bool = False) -> None:
    with Run(environment=environment, max_epochs=2) as run:
        for _ in run.epochs():
            Path(run.output_dir, "weights").write_text("trained")
            run.report(metric=metric)
        if fails:
            raise KeyError("after the last epoch")


def test_a_run_publishes_after_the_operator_holds_its_target_to_be_reached(
    report_server: ReportServer, tmp_path: Path
) -> None:
    report_server.behaviour = REACHED
    train(variables(report_server, str(tmp_path)))
    described = json.loads((tmp_path / "current" / DESCRIPTION).read_text())
    assert (described["recurrence"], described["metric"], described["epochs"]) == ("digits-0", 0.95, 1)
    published = {"folder": "digits-0", "digest": described["digest"]}
    assert [report["published"] for report in report_server.reports] == [None, None, published]
    assert report_server.reports[-1]["finished"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b'{"stop": false, "reason": ""}', "the operator has not confirmed that the target is reached"),
        (b'{"stop": true, "reason": "too expensive"}', "stopping: too expensive"),
    ],
)
def test_a_run_whose_target_the_operator_does_not_confirm_is_not_published(
    report_server: ReportServer, tmp_path: Path, answer: bytes, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    report_server.behaviour = answering(200, answer)
    train(variables(report_server, str(tmp_path)))
    assert not (tmp_path / "current").exists()
    assert message in caplog.text


@pytest.mark.parametrize(("metric", "rank", "fails"), [(0.5, "0", False), (0.95, "1", False), (0.95, "0", True)])
def test_only_rank_0_of_a_run_that_reached_and_ended_well_publishes(
    report_server: ReportServer, tmp_path: Path, metric: float, rank: str, fails: bool
) -> None:
    report_server.behaviour = REACHED
    environment = variables(report_server, str(tmp_path)) | {"RANK": rank}
    if fails:
        with pytest.raises(KeyError):
            train(environment, metric, fails=True)
    else:
        train(environment, metric)
    assert not (tmp_path / "current").exists()
    assert report_server.reports[-1]["published"] is None


def test_a_warm_start_keeps_the_model_that_was_current_when_it_began(
    report_server: ReportServer, tmp_path: Path
) -> None:
    publish_folder(model(tmp_path, "a", weights="a"), tmp_path / "current", {})
    current = str(tmp_path / "current")
    with Run(environment=variables(report_server, str(tmp_path)) | {"WATTLOOP_WARM_START_DIR": current}) as run:
        assert run.warm_start_dir == str(tmp_path / "attempts" / "a")
        publish_folder(model(tmp_path, "b", weights="b"), tmp_path / "current", {})
        assert run.warm_start_dir == str(tmp_path / "attempts" / "a")
    with Run(environment=variables(report_server, str(tmp_path))) as run:
        assert run.warm_start_dir == ""


def test_a_warm_start_from_an_object_store_reads_the_marker(
    report_server: ReportServer, caplog: pytest.LogCaptureFixture
) -> None:
    store, marker = Memory(), "s3://models/digits/current.json"
    environment = variables(report_server, "s3://models/digits") | {"WATTLOOP_WARM_START_DIR": marker}
    assert Run(environment=environment, marker_store=store).warm_start_dir == ""
    assert f"begins without the current model: {marker} does not exist" in caplog.text
    output_of("s3://models/digits/attempts/a", marker, store).publish({})
    assert Run(environment=environment, marker_store=store).warm_start_dir == "s3://models/digits/attempts/a"
    for spoiled in (b"", b"[]", b"{}", b"\xff"):
        store.write(marker, spoiled)
        assert Run(environment=environment, marker_store=store).warm_start_dir == ""


def test_a_model_that_cannot_be_published_does_not_fail_the_training(
    report_server: ReportServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    report_server.behaviour = REACHED
    environment = variables(report_server, "s3://models/digits")
    for store, message in ((None, "must write s3://models/digits/current.json"), (Unwritable(), "PermissionError")):
        with Run(environment=environment, marker_store=store) as run:
            run.report(metric=0.95)
        assert message in caplog.text
        assert report_server.reports[-1]["published"] is None
    assert Run(environment={}).output_dir == ""
