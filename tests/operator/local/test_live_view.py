"""The live view: every ended run is printed once, the newest last, and what runs is below."""

import dataclasses
import io
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.live import Live

from support.backends.model_backend import job
from support.databases.sample_record import RECORD
from support.recurrence_objects import recurrence_object
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.local.live_view import LiveView
from wattloop_operator.store import ObservationRecord

STARTED = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
CURSOR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
GPU = "GPU-6f1d8c4e-5a0f-4d57-9b0c-3c1a57f0a8de"


def ended(index: int, **changes: Any) -> ObservationRecord:
    return dataclasses.replace(
        RECORD, job_uid="job-uid", recurrence=index, recurrence_name=f"digits-{index}", **changes
    )


def running(index: int, reason: str = "r", progress: dict[str, Any] | None = None, **spec: Any) -> TrainingAttempt:
    decision = {"policy": "ThompsonSampling", "kind": "Sample", "reason": reason, "seed": "1", "digest": "d"}
    status: dict[str, Any] = {"startTime": "2026-03-01T12:00:00Z"}
    body = recurrence_object(f"digits-{index}", index=index, status=status, decision=decision, **spec)
    return TrainingAttempt.from_wire(body).model_copy(update={"progress": Progress.from_wire(progress or {})})


def progress(epoch: int, joules: int, seconds: int) -> dict[str, Any]:
    gpu = {"uuid": GPU, "startEnergyMillijoules": 5000, "energyMillijoules": 5000 + joules * 1000}
    times = {"startTimeSeconds": "100", "timeSeconds": str(100 + seconds)}
    return {"epoch": str(epoch), "metric": "0.907941254456", "gpus": [gpu | times]}


def shown(
    snapshots: Iterable[Snapshot], *, width: int = 80, height: int = 24, recurrences: int | None = 40
) -> list[list[str]]:
    """What each snapshot adds to the output, without escape sequences: its lines that are not empty."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=width, height=height, highlight=False, soft_wrap=True)
    outputs = []
    with Live(console=console, transient=True, auto_refresh=False) as live:
        view = LiveView(live, console, recurrences, now=lambda: STARTED + timedelta(minutes=1))
        for snapshot in snapshots:
            position = stream.tell()
            view.show(snapshot)
            output = CURSOR.sub("\n", COLOURS.sub("", stream.getvalue()[position:]))
            outputs.append([line for line in output.split("\n") if line])
    return outputs


@pytest.mark.parametrize("height", [10, 24, 50])
def test_no_ended_run_is_hidden_and_the_newest_is_last(height: int) -> None:
    records = [ended(index) for index in range(40)]
    snapshots = [Snapshot(job(), records=tuple(records[:count])) for count in (0, 1, 2, 25, 40, 40)]
    lines = [line for output in shown(snapshots, height=height) for line in output]
    printed = [int(line.split()[0]) for line in lines if "reached   trial" in line]
    assert printed == list(range(40))


def test_the_running_attempt_has_epoch_metric_power_and_predicted_end() -> None:
    # Earlier runs of this configuration took 10 epochs; 5 took one minute.
    same = [ended(index, batch_size=64, epochs=10.0) for index in range(2)]
    attempt = [running(2, "drawn", progress(epoch, 300 * epoch, epoch)) for epoch in (4, 5)]
    output = shown([Snapshot(job(), records=tuple(same), recurrences=(each,)) for each in attempt])[-1]
    end = (STARTED + timedelta(minutes=2)).astimezone()
    assert output[0] == f"run 2: 64, epoch 5, accuracy 0.9079, power 300 W, end about {end:%H:%M:%S} (epoch 10)"
    assert output[1] == "  sample: drawn"


def test_a_narrow_terminal_breaks_between_the_facts() -> None:
    (output,) = shown([Snapshot(job(), recurrences=(running(0),))], width=40)
    assert output[:2] == ["run 0: 64, epoch –, accuracy –, power –", "end –"]


def test_what_is_not_known_of_a_running_attempt_is_a_dash() -> None:
    (output,) = shown([Snapshot(job(), recurrences=(running(0),))])
    assert output[0] == "run 0: 64, epoch –, accuracy –, power –, end –"


def test_the_bar_counts_the_recurrences_that_have_ended() -> None:
    retried = (ended(0), dataclasses.replace(ended(1), result="Crashed"))
    (output,) = shown([Snapshot(job(), records=retried, recurrences=(running(1, attempt=1),))], recurrences=4)
    assert output[-1] == "[##########------------------------------] 1 of 4 runs, 1 reached"


@given(
    st.integers(20, 200),
    st.integers(0, 5),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=1000),
    st.dictionaries(st.sampled_from(("learning_rate", "optimizer")), st.text("01.aé中", min_size=1, max_size=60)),
)
def test_every_line_of_running_attempts_fits_into_the_terminal(
    width: int, count: int, reason: str, parameters: dict[str, str]
) -> None:
    attempts = tuple(running(index, reason, parameters=parameters) for index in range(count))
    (output,) = shown([Snapshot(job(), recurrences=attempts)], width=width, height=50)
    assert max(len(line) for line in output) <= width
    assert len(output) <= 24
