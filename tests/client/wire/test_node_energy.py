"""Node reports and their answers survive a round trip, and an error names the field."""

import contextlib
import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.wire import node_energy, training_messages
from wattloop.wire.message_fields import MessageError
from wattloop.wire.node_energy import GpuBounds, NodeAnswer, NodeGpu, NodeReport, PodGpuUsage, PodLimitState

GPU = {
    "uuid": "GPU-0",
    "product": "NVIDIA H200",
    "energy_millijoules": 9,
    "uncertainty_millijoules": 1,
    "time_seconds": 2.0,
    "source": "counter",
}
USAGE = {
    "pod_uid": "u-1",
    "namespace": "default",
    "pod": "digits-0",
    "container": "train",
    "gpu": "GPU-0",
    "shared": False,
    "energy_millijoules": 9,
    "uncertainty_millijoules": 1,
    "start_time_seconds": 1.0,
    "time_seconds": 2.0,
    "ended": False,
}
REPORT = {"node": "node-1", "ledger": "3f", "sequence": 1, "gpus": [GPU], "usages": [USAGE]}


def without(body: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != name}


INVALID_REPORTS: dict[str, tuple[Any, str]] = {
    "no object": ([1], "the message: found a list, expected an object"),
    "an unknown field": (REPORT | {"pods": []}, "found the unknown field 'pods', expected only"),
    "no node": (without(REPORT, "node"), "node: found nothing, expected a string of at most 253"),
    "an empty ledger": (REPORT | {"ledger": ""}, "ledger: found ''"),
    "a negative sequence": (REPORT | {"sequence": -1}, "sequence: found -1, expected a whole number from 0"),
    "too many GPUs": (REPORT | {"gpus": [GPU] * 65}, "gpus: found 65 entries, expected a list of at most 64"),
    "the same GPU twice": (REPORT | {"gpus": [GPU, GPU]}, "gpus: found 'GPU-0' twice, expected one entry per GPU"),
    "an unknown source": (REPORT | {"gpus": [GPU | {"source": "guess"}]}, "gpus[0].source: found 'guess', expected"),
    "too many usages": (REPORT | {"usages": [USAGE] * 1025}, "usages: found 1025 entries, expected a list"),
    "the same usage twice": (REPORT | {"usages": [USAGE, USAGE]}, "usages: found \"('u-1', 'train', 'GPU"),
    "no shared": (
        REPORT | {"usages": [without(USAGE, "shared")]},
        "usages[0].shared: found nothing, expected true or false",
    ),
    "no ended": (
        REPORT | {"usages": [without(USAGE, "ended")]},
        "usages[0].ended: found nothing, expected true or false",
    ),
    "a clock that goes back": (
        REPORT | {"usages": [USAGE | {"time_seconds": 0.5}]},
        "usages[0].time_seconds: found 0.5, expected at least the start's 1.0",
    ),
    "negative energy": (
        REPORT | {"usages": [USAGE | {"energy_millijoules": -1}]},
        "usages[0].energy_millijoules: found -1, expected a whole number from 0",
    ),
    "NaN": (
        REPORT | {"gpus": [GPU | {"time_seconds": math.nan}]},
        "gpus[0].time_seconds: found nan, expected a finite",
    ),
    "a line break in a name": (REPORT | {"usages": [USAGE | {"pod": "a\nb"}]}, "usages[0].pod: found 'a\\nb'"),
}
INVALID_ANSWERS: dict[str, tuple[Any, str]] = {
    "no object": ("acknowledged", "the message: found 'acknowledged', expected an object"),
    "acknowledged that is no list": ({"acknowledged": "u-1"}, "acknowledged: found 'u-1', expected a list"),
    "a uid that is none": ({"acknowledged": ["u-1", 7]}, "acknowledged[1]: found 7, expected a string"),
    "bounds of nothing": ({"bounds": [{}]}, "bounds[0].policy: found nothing"),
    "a bound of a later version": (
        {"bounds": [{"policy": "p", "hours": []}]},
        "bounds[0]: found the unknown field 'hours', expected only",
    ),
    "a range with one end": (
        {"bounds": [{"policy": "p", "power_limit_watts": [100.0]}]},
        "bounds[0].power_limit_watts: found 1 entries, expected the lowest and the highest",
    ),
    "a range upside down": (
        {"bounds": [{"policy": "p", "power_limit_watts": [300, 200]}]},
        "bounds[0].power_limit_watts.highest: found 200, expected a number from 300 to 10000",
    ),
    "a policy twice": ({"bounds": [{"policy": "p"}, {"policy": "p"}]}, "bounds: found 'p' twice"),
}


@pytest.mark.parametrize("case", INVALID_REPORTS)
def test_an_invalid_report_is_an_error_that_names_its_field(case: str) -> None:
    body, expected = INVALID_REPORTS[case]
    with pytest.raises(MessageError) as raised:
        NodeReport.from_json(body)
    assert str(raised.value).startswith(expected)


@pytest.mark.parametrize("case", INVALID_ANSWERS)
def test_an_invalid_answer_is_an_error_that_names_its_field(case: str) -> None:
    body, expected = INVALID_ANSWERS[case]
    with pytest.raises(MessageError) as raised:
        NodeAnswer.from_json(body)
    assert str(raised.value).startswith(expected)


def test_unknown_fields_of_an_answer_are_ignored() -> None:
    assert NodeAnswer.from_json({"acknowledged": ["u-1"], "later": 1}) == NodeAnswer(("u-1",), None)


def test_an_answer_distinguishes_no_policies_from_unknown_policies() -> None:
    assert NodeAnswer.from_json({"bounds": []}).bounds == ()
    assert NodeAnswer.from_json({}).bounds is None


def test_the_largest_report_fits_the_size_limit() -> None:
    gpus = tuple(
        NodeGpu(f"{index:0>96}", 2 * 10**14, 2 * 10**14, 9999999999.123456, "integrated", "P" * 128)
        for index in range(training_messages.MAX_GPUS)
    )
    usage = PodGpuUsage(
        "u" * 96, "n" * 63, "p" * 253, "c" * 63, "", False, 2 * 10**14, 2 * 10**14, 1.0, 9999999999.123456, False
    )
    usages = tuple(replace(usage, gpu=f"{index:0>96}") for index in range(node_energy.MAX_POD_GPU_USAGES))
    states = tuple(
        PodLimitState(f"{index:0>96}", (1234.567891, 9876.543219), 1234.567891, 9999999999.123456, "r" * 512)
        for index in range(node_energy.MAX_POD_LIMITS)
    )
    report = NodeReport("n" * 253, "l" * 63, 2**63 - 1, gpus, usages, states)
    assert NodeReport.from_json(report.to_json()) == report
    assert len(json.dumps(report.to_json())) < node_energy.MAX_NODE_REPORT_BYTES


TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=20)
MILLIJOULES = st.integers(0, training_messages.MAX_ENERGY_MILLIJOULES)
CLOCKS = st.floats(0, training_messages.MAX_TIME_SECONDS)
GPUS = st.builds(NodeGpu, TEXTS, MILLIJOULES, MILLIJOULES, CLOCKS, st.sampled_from(node_energy.SOURCES), TEXTS)
USAGES = st.tuples(CLOCKS, CLOCKS).flatmap(
    lambda clocks: st.builds(
        PodGpuUsage,
        pod_uid=TEXTS,
        namespace=TEXTS,
        pod=TEXTS,
        container=TEXTS,
        gpu=TEXTS,
        shared=st.booleans(),
        energy_millijoules=MILLIJOULES,
        uncertainty_millijoules=MILLIJOULES,
        start_time_seconds=st.just(min(clocks)),
        time_seconds=st.just(max(clocks)),
        ended=st.booleans(),
    )
)
REPORTS = st.builds(
    NodeReport,
    node=TEXTS,
    ledger=TEXTS,
    sequence=st.integers(0, 2**63 - 1),
    gpus=st.lists(GPUS, max_size=3, unique_by=lambda gpu: gpu.uuid).map(tuple),
    usages=st.lists(USAGES, max_size=3, unique_by=lambda usage: usage.key).map(tuple),
)


def ranges(maximum: float) -> st.SearchStrategy[tuple[float, float] | None]:
    ends = st.tuples(st.floats(0, maximum), st.floats(0, maximum)).map(lambda pair: (min(pair), max(pair)))
    return st.none() | ends


BOUNDS = st.builds(
    GpuBounds,
    policy=TEXTS,
    products=st.none() | st.lists(TEXTS, max_size=3).map(tuple),
    namespaces=st.none() | st.lists(TEXTS, max_size=3).map(tuple),
    power_limit_watts=ranges(training_messages.MAX_LIMIT_WATTS),
    graphics_clock_megahertz=ranges(node_energy.MAX_CLOCK_MEGAHERTZ),
    memory_clock_megahertz=ranges(node_energy.MAX_CLOCK_MEGAHERTZ),
)
ANSWERS = st.builds(
    NodeAnswer,
    st.lists(TEXTS, max_size=3).map(tuple),
    st.none() | st.lists(BOUNDS, max_size=3, unique_by=lambda each: each.policy).map(tuple),
)


@given(REPORTS)
def test_a_report_survives_a_round_trip(report: NodeReport) -> None:
    assert NodeReport.from_json(json.loads(json.dumps(report.to_json()))) == report


@given(ANSWERS)
def test_an_answer_survives_a_round_trip(answer: NodeAnswer) -> None:
    assert NodeAnswer.from_json(json.loads(json.dumps(answer.to_json()))) == answer


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: (
            st.dictionaries(
                st.sampled_from(["node", "ledger", "sequence", "gpus", "usages", "acknowledged", "bounds", "policy"]),
                inner,
            )
            | st.lists(inner)
        ),
        max_leaves=8,
    )
)
def test_any_message_is_valid_or_an_error(body: Any) -> None:
    for form in (NodeReport, NodeAnswer):
        with contextlib.suppress(MessageError):
            assert form.from_json(form.from_json(body).to_json()) == form.from_json(body)
