"""Reports and answers survive a round trip, and an error names the field."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.wire import training_messages
from wattloop.wire.message_fields import MessageError
from wattloop.wire.training_messages import Answer, GpuEnergy, LimitMeasurement, Report

GPU = {
    "uuid": "GPU-0",
    "start_energy_millijoules": 5,
    "energy_millijoules": 9,
    "start_time_seconds": 1.0,
    "time_seconds": 2.0,
}
LIMIT = {"power_limit_watts": 300.0, "energy_joules": 10.0, "time_seconds": 5.0, "epochs": 0.1}
HUGE = 10**5000
BASE = {"process": "p", "sequence": 1, "epoch": 1}

INVALID: dict[str, tuple[Any, str]] = {
    "no object": ([1, 2], "the message: found a list, expected an object"),
    "a text": ("report", "the message: found 'report', expected an object"),
    "nothing at all": ({}, "process: found nothing"),
    "no epoch": ({"process": "p", "sequence": 1}, "epoch: found nothing"),
    "an unknown field": (BASE | {"loss": 2}, "found the unknown field 'loss', expected only"),
    "NaN": (BASE | {"metric": math.nan}, "metric: found nan, expected a finite number"),
    "infinity": (BASE | {"epoch": math.inf}, "epoch: found inf, expected a finite number"),
    "a huge whole number": (BASE | {"epoch": HUGE}, "epoch: found a number of 16610 bits"),
    "a huge sequence": (BASE | {"sequence": HUGE}, "sequence: found a number of 16610 bits"),
    "a boolean as number": (BASE | {"epoch": True}, "epoch: found True, expected a finite number"),
    "a boolean as whole number": (BASE | {"sequence": True}, "sequence: found True, expected a whole number"),
    "a fraction as sequence": (BASE | {"sequence": 1.5}, "sequence: found 1.5, expected a whole number"),
    "a negative sequence": (BASE | {"sequence": -1}, "sequence: found -1"),
    "a negative epoch": (BASE | {"epoch": -0.5}, "epoch: found -0.5, expected a number from 0"),
    "a number in quotes": (BASE | {"epoch": "1"}, "epoch: found '1', expected a finite number"),
    "a metric beyond bounds": (BASE | {"metric": 1e300}, "metric: found 1e+300"),
    "a number as boolean": (BASE | {"finished": 1}, "finished: found 1, expected true or false"),
    "a long product": (BASE | {"gpu_product": "A" * 129}, "gpu_product: found 'AAAA"),
    "a product with NUL": (BASE | {"gpu_product": "A\0"}, "gpu_product: found 'A\\x00'"),
    "half a character": (BASE | {"gpu_product": "\ud800"}, "gpu_product: found '\\ud800'"),
    "too many GPUs": (BASE | {"gpus": [GPU] * 65}, "gpus: found 65 entries, expected a list of at"),
    "GPUs as object": (BASE | {"gpus": GPU}, "gpus: found an object, expected a list"),
    "a GPU that is none": (BASE | {"gpus": [GPU, 7]}, "gpus[1]: found 7, expected an object"),
    "the same GPU twice": (BASE | {"gpus": [GPU, GPU]}, "gpus: found the same uuid twice"),
    "a GPU without uuid": (BASE | {"gpus": [GPU | {"uuid": ""}]}, "gpus[0].uuid: found ''"),
    "negative energy": (
        BASE | {"gpus": [GPU | {"energy_millijoules": 4}]},
        "gpus[0].energy_millijoules: found 4, expected at least the start's 5: energy is never negative",
    ),
    "a clock that goes back": (
        BASE | {"gpus": [GPU | {"time_seconds": 0.5}]},
        "gpus[0].time_seconds: found 0.5, expected at least the start's",
    ),
    "an unknown field of a GPU": (BASE | {"gpus": [GPU | {"watts": 3}]}, "gpus[0]: found the unknown field 'watts'"),
    "too many limits": (BASE | {"profile": [LIMIT] * 65}, "profile: found 65 entries"),
    "the same limit twice": (
        BASE | {"profile": [LIMIT, LIMIT | {"power_limit_watts": 300.4}]},
        "profile: found the same power limit twice",
    ),
    "a limit measured over nothing": (
        BASE | {"profile": [LIMIT | {"epochs": 0}]},
        "profile[0].epochs: found 0, expected a number from 1e-06",
    ),
    "a limit of less than a watt": (
        BASE | {"profile": [LIMIT | {"power_limit_watts": 0.2}]},
        "profile[0].power_limit_watts: found 0.2, expected a number from 1 to 10000",
    ),
}


@pytest.mark.parametrize(("body", "message"), INVALID.values(), ids=INVALID.keys())
def test_an_invalid_report_is_an_error_that_names_the_field_and_valid_values(body: object, message: str) -> None:
    with pytest.raises(MessageError) as raised:
        Report.from_json(body)
    assert str(raised.value).startswith(message)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize(
    "uuid",
    [
        "GPU-1232c39e-102e-cf73-b8b6-1bc34c8e069f",
        "MIG-41b36413-03bc-566b-ae38-fa5fcd6c8c0b",
        "MIG-GPU-1232c39e-102e-cf73-b8b6-1bc34c8e069f/7/0",
    ],
)
def test_the_uuid_formats_of_nvml_are_valid(uuid: str) -> None:
    assert Report.from_json(BASE | {"gpus": [GPU | {"uuid": uuid}]}).gpus[0].uuid == uuid


@pytest.mark.parametrize(
    "uuid",
    ["", "GPU-", "gpu-1", "GPU-" + "0" * 37, "GPU-x", "GPU-0\n", "G" * 96, "MIG-GPU-0/1000/0", "GPU-0/1/1", "GPU-०", 7],
)
def test_an_invalid_uuid_is_an_error_that_names_its_place(uuid: object) -> None:
    with pytest.raises(MessageError, match=r"^gpus\[0\]\.uuid: found .*expected a GPU's UUID as NVML writes it"):
        Report.from_json(BASE | {"gpus": [GPU | {"uuid": uuid}]})


def numbers(minimum: float, maximum: float) -> st.SearchStrategy[float]:
    return st.floats(minimum, maximum, allow_nan=False, allow_infinity=False)


TEXTS = st.text(
    st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=training_messages.MAX_UUID_CHARACTERS
)
UUIDS = st.from_regex(training_messages.GPU_UUID, fullmatch=True)


@st.composite
def gpu_energies(draw: st.DrawFn) -> GpuEnergy:
    counters = sorted(draw(st.tuples(*[st.integers(0, training_messages.MAX_ENERGY_MILLIJOULES)] * 2)))
    clocks = sorted(draw(st.tuples(*[numbers(0, training_messages.MAX_TIME_SECONDS)] * 2)))
    return GpuEnergy(draw(UUIDS), counters[0], counters[1], clocks[0], clocks[1])


LIMITS = st.builds(
    LimitMeasurement,
    numbers(1, training_messages.MAX_LIMIT_WATTS),
    numbers(training_messages.MIN_MEASURED, training_messages.MAX_NUMBER),
    numbers(training_messages.MIN_MEASURED, training_messages.MAX_TIME_SECONDS),
    numbers(training_messages.MIN_MEASURED, training_messages.MAX_NUMBER),
)
INTEGERS = st.integers(0, 2**63 - 1)
REPORTS = st.builds(
    Report,
    process=TEXTS.filter(bool).map(lambda text: text[: training_messages.MAX_PROCESS_CHARACTERS]),
    sequence=st.integers(1, 2**63 - 1),
    epoch=numbers(0, training_messages.MAX_NUMBER),
    metric=st.none() | numbers(-training_messages.MAX_NUMBER, training_messages.MAX_NUMBER),
    evaluations=INTEGERS,
    consecutive_reached=st.none() | INTEGERS,
    gpus=st.lists(gpu_energies(), max_size=4, unique_by=lambda gpu: gpu.uuid).map(tuple),
    gpu_product=TEXTS,
    max_power_limit_watts=numbers(0, training_messages.MAX_POWER_WATTS),
    power_limit_watts=st.none() | numbers(0, training_messages.MAX_LIMIT_WATTS),
    profile=st.lists(LIMITS, max_size=4, unique_by=lambda limit: round(limit.power_limit_watts)).map(tuple),
    finished=st.booleans(),
    rank=INTEGERS,
)


@given(REPORTS)
def test_a_report_survives_a_round_trip(report: Report) -> None:
    assert Report.from_json(json.loads(json.dumps(report.to_json(), allow_nan=False))) == report


def test_the_largest_report_fits_the_size_limit() -> None:
    gpu = GpuEnergy(f"MIG-GPU-{'f' * 36}/127/127", 10**14 - 1, 10**14, 123456789.123456789, 1234567890.123456789)
    largest = Report(
        process="~" * training_messages.MAX_PROCESS_CHARACTERS,
        sequence=2**63 - 1,
        epoch=1 / 3,
        metric=-1 / 3,
        gpus=tuple(
            GpuEnergy(f"MIG-GPU-{index:036}/127/127", *list(gpu.__dict__.values())[1:])
            for index in range(training_messages.MAX_GPUS)
        ),
        gpu_product="A" * 128,
        profile=tuple(
            LimitMeasurement(100 + index, 1e6 / 3, 1e6 / 3, 1 / 3) for index in range(training_messages.MAX_LIMITS)
        ),
    )
    body = json.dumps(Report.from_json(largest.to_json()).to_json())
    assert len(body) <= training_messages.MAX_REPORT_BYTES


def test_an_answer_of_a_later_version_is_valid() -> None:
    assert Answer.from_json({"stop": True, "reason": "too expensive", "hint": 7}) == Answer(True, "too expensive")


def test_a_long_reason_is_truncated() -> None:
    answer = Answer.from_json({"stop": True, "reason": "x" * 10_000})
    assert answer.stop
    assert len(answer.reason) == training_messages.MAX_REASON_CHARACTERS


@pytest.mark.parametrize("body", [None, [], {"stop": 1}, {"stop": True, "reason": 5}])
def test_an_invalid_answer_is_an_error(body: object) -> None:
    with pytest.raises(MessageError):
        Answer.from_json(body)
