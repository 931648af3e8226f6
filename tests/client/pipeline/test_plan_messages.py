"""Messages of a pipeline's ranks survive a round trip, and an error names the field."""

from dataclasses import replace
from typing import Any

import pytest

from wattloop.pipeline.free_iterations import ComparedCycles, FreeIterations
from wattloop.pipeline.instruction import Instruction
from wattloop.pipeline.knobs import MAX_KNOB_SETTINGS, KnobChoices, Knobs
from wattloop.pipeline.plan_messages import (
    Directive,
    InstructionMeasurement,
    RankRegistration,
    RankReport,
    StragglerNotice,
)
from wattloop.wire.message_fields import MessageError

PROCESS = "0123456789abcdef" * 2
REGISTRATION = RankRegistration(
    process=PROCESS,
    rank=5,
    data_parallel=2,
    tensor_parallel=1,
    pipeline_parallel=4,
    data_rank=1,
    tensor_rank=0,
    pipeline_rank=1,
    stages=4,
    microbatches=2,
    schedule="1F1B",
    instructions=("forward:1:0", "forward:1:1", "backward:1:0", "backward:1:1"),
    gpu_product="NVIDIA A100-SXM4-40GB",
    gpus=1,
    clocks_megahertz=(1200, 1410),
)
MEASUREMENT = InstructionMeasurement("forward", 1, 1410, 12, 0.05, 0.001, 12.5, None)
REPORT = RankReport(PROCESS, 3, 1, 40, 1, 30, 0.5, 120.0, 0.5, 60.0, (MEASUREMENT,))

KNOBS = KnobChoices(("sm", "overlap"), (("16", "yes"), ("20", "no")), (1, 0))

INVALID_REGISTRATIONS: dict[str, tuple[dict[str, Any], str]] = {
    "a rank outside its degree": ({"data_rank": 2}, "data_rank: found 2, expected less than data_parallel, 2"),
    "a degree of zero": ({"tensor_parallel": 0}, "tensor_rank: found 0, expected less than tensor_parallel, 0"),
    "a global rank outside the job": ({"rank": 8}, "rank: found 8 of 8 ranks"),
    "stages that do not divide": ({"stages": 6}, "stages: found 6, expected a multiple of 4"),
    "no instructions": ({"instructions": ()}, "instructions, clocks_megahertz: found none"),
    "no clocks": ({"clocks_megahertz": ()}, "instructions, clocks_megahertz: found none"),
    "an instruction twice": ({"instructions": ("forward:1:0",) * 2}, "instructions: found 'forward:1:0' twice"),
    "an unknown stage": ({"instructions": ("forward:4:0",)}, "found forward:4:0, expected a stage below 4"),
    "an unknown microbatch": ({"instructions": ("forward:1:2",)}, "expected a stage below 4 and a microbatch below 2"),
    "descending clocks": ({"clocks_megahertz": (1410, 1200)}, "clocks_megahertz: found another order"),
    "an instruction in another form": ({"instructions": ("forward 1 0",)}, r"instructions\[0\]: found 'forward 1 0'"),
}


@pytest.mark.parametrize(
    "message",
    [
        REGISTRATION,
        REPORT,
        replace(REPORT, compared=(ComparedCycles(0, 2, 2, 0.8, 0.75, 190.0, 201.5),)),
        Directive(number=2, mode="Plan", first_iteration=7),
        Directive(number=2, mode="Plan", first_iteration=7, free=FreeIterations(3, 8, 12, 100)),
        Directive(number=2, mode="Plan", clocks_megahertz=(900, 915), knobs=KNOBS),
        StragglerNotice(1.5, "heat"),
    ],
)
def test_a_message_survives_a_round_trip(message: RankRegistration | RankReport | Directive | StragglerNotice) -> None:
    assert type(message).from_json(message.to_json()) == message


def test_a_report_without_a_comparison_has_no_field_that_an_operator_of_an_earlier_version_refuses() -> None:
    assert "compared" not in REPORT.to_json()
    assert "compared" in replace(REPORT, compared=(ComparedCycles(0, 1, 1, 0.8, 0.75),)).to_json()


@pytest.mark.parametrize(("changes", "text"), INVALID_REGISTRATIONS.values(), ids=INVALID_REGISTRATIONS)
def test_an_invalid_registration_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(MessageError, match=text):
        RankRegistration.from_json(replace(REGISTRATION, **changes).to_json())


def test_a_report_has_one_measurement_of_an_instruction_at_a_clock() -> None:
    twice = replace(REPORT, measurements=(MEASUREMENT, replace(MEASUREMENT, repetitions=3)))
    with pytest.raises(MessageError, match="found 'forward:1 at 1410 MHz' twice"):
        RankReport.from_json(twice.to_json())


def test_a_profile_without_iterations_is_refused() -> None:
    with pytest.raises(MessageError, match=r"^iterations_per_clock: found 0, expected"):
        Directive.from_json({"mode": "Profile", "warm_up_iterations": 0, "iterations_per_clock": 0})


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_the_time_of_a_straggler_is_positive(seconds: float) -> None:
    with pytest.raises(MessageError, match="iteration_seconds: found"):
        StragglerNotice.from_json({"iteration_seconds": seconds})


@pytest.mark.parametrize("text", ["forward", "Forward:0:0", "forward:00:1", "forward:0:-1", "forward:10000:0"])
def test_another_form_of_an_instruction_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected kind:stage:microbatch"):
        Instruction.of(text)


@pytest.mark.parametrize(
    ("knobs", "text"),
    [
        ({"choices": (0, 0, 0)}, "knobs.choices: found 3, expected one for each of 2 clocks"),
        ({"choices": (0, 2)}, "knobs.choices: found 2, expected less than 2"),
        ({"settings": (("16",), ("20", "no"))}, r"settings\[0\]: found 1 values, expected one of each of 2 knobs"),
        ({"names": ("sm", "sm")}, "knobs.names: found 'sm' twice"),
        ({"names": (), "settings": ((), ())}, "knobs.names: found none"),
        ({"settings": (("16", 5), ("20", "no"))}, r"knobs.settings\[0\]\[1\]: found 5, expected a string"),
        ({"settings": (("1" * 65, "yes"), ("20", "no"))}, r"settings\[0\]\[0\]: .* of at most 64 characters"),
    ],
)
def test_invalid_knobs_are_refused(knobs: dict[str, Any], text: str) -> None:
    directive = Directive(number=2, mode="Plan", clocks_megahertz=(900, 915), knobs=replace(KNOBS, **knobs))
    with pytest.raises(MessageError, match=text):
        Directive.from_json(directive.to_json())


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([{"sm": "1"}, {"streams": "2"}], "instruction 1: found streams, expected the knobs of the first one: sm"),
        ([{}, {"sm": "1"}], "instruction 1: found sm, expected the knobs of the first one: none"),
        ([{"sm": str(number)} for number in range(MAX_KNOB_SETTINGS + 1)], "found 257 entries, expected a list of at"),
    ],
)
def test_instructions_with_knobs_that_a_message_cannot_hold_are_refused(rows: list[Knobs], text: str) -> None:
    with pytest.raises(MessageError, match=text):
        KnobChoices.of(rows)
