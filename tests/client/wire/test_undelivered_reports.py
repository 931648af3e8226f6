"""The reports in a termination message: they fit, come back as they were, and a part of them never looks like all."""

import base64
import json
import random
import uuid
import zlib
from dataclasses import replace

import pytest

from wattloop.wire.message_fields import MessageError
from wattloop.wire.training_messages import GpuEnergy, LimitMeasurement, PublishedModel, Report
from wattloop.wire.undelivered_reports import (
    MAX_MESSAGE_BYTES,
    TOO_MANY,
    joined_message,
    packed,
    split_message,
    unpacked,
)

LONGEST = Report(process="p" * 64, sequence=2**63 - 1, epoch=1e14, metric=-1e14 / 3, failure="F" * 64, rank=999_999)


def measured(gpus: int, limits: int = 0, *, rank: int = 0) -> Report:
    """A last report with numbers that have as many digits as measured ones."""
    numbers = random.Random(rank)

    def gpu() -> GpuEnergy:
        millijoules, seconds = numbers.randrange(10**12), numbers.random() * 1e6
        later = millijoules + numbers.randrange(10**10), seconds + numbers.random() * 1e5
        name = f"GPU-{uuid.UUID(int=numbers.getrandbits(128))}"
        return GpuEnergy(name, millijoules, later[0], seconds, later[1], shared=False, counter="6f1b2a9c")

    return Report(
        process=f"{numbers.getrandbits(64):016x}",
        sequence=412,
        epoch=57.0,
        metric=numbers.random(),
        evaluations=57,
        consecutive_reached=1,
        gpus=tuple(gpu() for _ in range(gpus)),
        gpu_product="NVIDIA H100 80GB HBM3",
        max_power_limit_watts=700.0 * gpus,
        power_limit_watts=500.0,
        published=PublishedModel("digits-0", "0" * 32),
        profile=tuple(
            LimitMeasurement(100.0 + each, numbers.random() * 1e6, numbers.random() * 1e4, numbers.random())
            for each in range(limits)
        ),
        finished=True,
        rank=rank,
        ranks=16,
    )


@pytest.mark.parametrize(
    ("reports", "keeps_limits"),
    [
        ([measured(8, 8)], True),
        ([measured(1, 6, rank=rank) for rank in range(8)], True),
        ([measured(1, 6, rank=rank) for rank in range(16)], False),
        ([measured(32, 8)], True),
        ([LONGEST], True),
    ],
    ids=["8 GPUs", "8 ranks", "16 ranks", "32 GPUs", "longest"],
)
def test_the_reports_of_a_container_come_back_without_their_measured_limits_if_these_do_not_fit(
    reports: list[Report], keeps_limits: bool
) -> None:
    message = joined_message("Epoch 57 done", packed(reports))
    assert len(message) <= MAX_MESSAGE_BYTES
    output, text = split_message(message)
    assert output == "Epoch 57 done"
    assert unpacked(text) == tuple(each if keeps_limits else replace(each, profile=()) for each in reports)


@pytest.mark.parametrize("length", [0, 100, 2048, 4096, 60_000])
@pytest.mark.parametrize("containers", [1, 5])
def test_the_line_of_reports_survives_the_cuts_of_the_kubelet(length: int, containers: int) -> None:
    """It takes the end of the file, and of that the first part of what it keeps of a pod."""
    text = packed([measured(1)])
    taken = joined_message("x" * length, text)[-MAX_MESSAGE_BYTES:]
    kept = taken[: 12 * 1024 // containers]
    assert split_message(kept)[1] == text or (length > 3000 and containers > 3)


@pytest.mark.parametrize(
    "reports", [[measured(64)], [measured(1, rank=rank) for rank in range(64)]], ids=["64 GPUs", "64 ranks"]
)
def test_reports_that_do_not_fit_say_so_and_leave_no_part_of_an_energy(reports: list[Report]) -> None:
    assert packed(reports) == TOO_MANY
    with pytest.raises(MessageError, match="had more to report than 4096 bytes hold"):
        unpacked(TOO_MANY)


def test_a_text_that_the_kubelet_or_a_kill_cut_off_is_never_taken_for_reports() -> None:
    text = packed([measured(2)])
    for length in range(len(text)):
        with pytest.raises(MessageError):
            unpacked(text[:length])


def encoded(data: bytes) -> str:
    return base64.b85encode(zlib.compress(data)).decode()


@pytest.mark.parametrize(
    "text",
    [
        "\N{SNOWMAN}",
        "'",
        encoded(b"{}"),
        encoded(b"[1]"),
        encoded(b"\xff"),
        encoded(b"[" * 100_000),
        encoded(b" " * 100_000_000),
        encoded(json.dumps([{"process": "p", "sequence": 1, "epoch": -1}]).encode()),
        encoded(json.dumps([{"process": "p", "sequence": 1, "epoch": 1, "more": 1}]).encode()),
    ],
)
def test_a_hostile_text_is_refused(text: str) -> None:
    with pytest.raises(MessageError):
        unpacked(text)
