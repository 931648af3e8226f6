"""The environment variables of a training process: written, read and validated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.errors import InputError
from wattloop.wire.environment import SELECTORS, RunEnvironment, RunTarget

# The values that the kernel accepts for a variable.
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=30)
INTEGERS = st.integers(1, 2**63)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
TARGETS = st.builds(RunTarget, TEXTS, NUMBERS, st.booleans(), st.integers(1, 100))
NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,20}", fullmatch=True)
ENVIRONMENTS = st.builds(
    RunEnvironment,
    job=TEXTS,
    recurrence=TEXTS,
    batch_size=st.none() | INTEGERS,
    per_device_batch_size=st.none() | INTEGERS,
    learning_rate_scale=NUMBERS,
    max_epochs=st.none() | INTEGERS,
    target=st.none() | TARGETS,
    power_limit_watts=st.none() | NUMBERS,
    profile_power_limits=st.booleans(),
    power_selector=st.sampled_from(SELECTORS),
    max_slowdown_percent=NUMBERS,
    eta=NUMBERS,
    seed=st.none() | st.integers(0, 2**64 - 1),
    parameters=st.dictionaries(NAMES, TEXTS | st.just(""), max_size=3),
    advise=st.booleans(),
    report_url=TEXTS,
    token_file=TEXTS,
    certificate_authority_file=TEXTS,
    agent_socket=TEXTS,
    termination_message_path=TEXTS,
)


@given(ENVIRONMENTS)
def test_settings_survive_a_round_trip_through_the_environment(environment: RunEnvironment) -> None:
    assert RunEnvironment.read(environment.variables()) == environment


def test_a_process_without_variables_runs_outside_wattloop() -> None:
    assert RunEnvironment.read({}) == RunEnvironment()
    assert not RunEnvironment().managed
    assert RunEnvironment(job="team/digits").managed


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({}, 0),
        ({"RANK": "3"}, 3),
        ({"JOB_COMPLETION_INDEX": "2"}, 2),
        ({"RANK": "3", "JOB_COMPLETION_INDEX": "2"}, 3),
        ({"RANK": ""}, 0),
        ({"RANK": "first"}, 0),
    ],
)
def test_the_rank_comes_from_the_launcher(variables: dict[str, str], rank: int) -> None:
    assert RunEnvironment.read({"WATTLOOP_JOB": "team/digits", **variables}).rank == rank


INVALID = {
    "WATTLOOP_BATCH_SIZE": ("0", "-3", "32.0", "many", "1" * 5000, "٣", str(2**64)),
    "WATTLOOP_MAX_EPOCHS": ("0", "1e3"),
    "WATTLOOP_SEED": ("-1", "0x1"),
    "WATTLOOP_ETA": ("half", "nan", "inf", "1e999"),
    "WATTLOOP_LEARNING_RATE_SCALE": ("fast",),
    "WATTLOOP_POWER_SELECTOR": ("Cheapest", "cost"),
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in INVALID.items() for text in texts])
def test_an_invalid_value_is_an_error_that_names_the_variable(name: str, text: str) -> None:
    with pytest.raises(InputError, match=name) as raised:
        RunEnvironment.read({"WATTLOOP_JOB": "team/digits", name: text})
    assert len(str(raised.value)) < 250


def test_an_unknown_direction_of_the_target_is_an_error() -> None:
    variables = {
        "WATTLOOP_TARGET_METRIC": "loss",
        "WATTLOOP_TARGET_THRESHOLD": "1",
        "WATTLOOP_TARGET_DIRECTION": "Down",
    }
    with pytest.raises(InputError, match="WATTLOOP_TARGET_DIRECTION"):
        RunEnvironment.read(variables)


@pytest.mark.parametrize(("value", "maximize", "reached"), [(0.9, True, True), (0.89, True, False), (0.9, False, True)])
def test_a_target_is_reached_at_its_threshold(value: float, maximize: bool, reached: bool) -> None:
    assert RunTarget("accuracy", 0.9, maximize).reached_by(value) is reached
