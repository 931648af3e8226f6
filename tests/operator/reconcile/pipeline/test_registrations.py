"""Registrations that are incomplete or contradict each other are refused, with both sides named."""

from dataclasses import replace
from datetime import timedelta

import pytest

from support.pipelines.registrations import rank_registration
from support.pipelines.simulated_ranks import NEW_STATE, START
from wattloop.pipeline.plan_messages import RankRegistration
from wattloop_operator.reconcile.pipeline import registrations
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineState
from wattloop_operator.reconcile.pipeline.registrations import Registrar, RegistrationConflictError


def state_of(*registrations: RankRegistration) -> PipelineState:
    registrar = Registrar(NEW_STATE, START)
    for registration in registrations:
        registrar.merge(registration)
    return registrar.state


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (rank_registration(1, data_parallel=2), "data_parallel: rank 1 registers 2, and rank 0 1"),
        (
            rank_registration(1, gpu_product="NVIDIA H200"),
            "gpu_product: rank 1 registers 'NVIDIA H200', and rank 0 'NVIDIA A40'",
        ),
        (replace(rank_registration(1), schedule="GPipe"), "schedule: rank 1 registers 'GPipe', and rank 0 '1F1B'"),
        (
            replace(rank_registration(0), rank=1, process="f" * 32),
            "rank 1 and rank 0 both register data rank 0, tensor rank 0 and pipeline rank 0",
        ),
        (
            replace(rank_registration(0), rank=1, process="f" * 32, pipeline_rank=1),
            "stage 0 is run by rank 1 at pipeline rank 1, and by rank 0 at pipeline rank 0",
        ),
    ],
)
def test_a_rank_that_contradicts_another_one_is_refused(new: RankRegistration, message: str) -> None:
    before = state_of(rank_registration(0))
    with pytest.raises(RegistrationConflictError) as caught:
        Registrar(before, START).merge(new)
    assert str(caught.value) == message


def test_ranks_of_a_pipeline_rank_run_the_same_instructions() -> None:
    before = state_of(rank_registration(0, data_parallel=2))
    other = rank_registration(2, data_parallel=2)
    swapped = (*other.instructions[:2][::-1], *other.instructions[2:])
    with pytest.raises(RegistrationConflictError) as caught:
        Registrar(before, START).merge(replace(other, instructions=swapped))
    assert "rank 2 and rank 0, both at pipeline rank 0, differ: instruction 0 is" in str(caught.value)


def test_a_schedule_with_a_missing_instruction_is_refused() -> None:
    whole = rank_registration(1)
    with pytest.raises(RegistrationConflictError) as caught:
        state_of(replace(whole, instructions=whole.instructions[:-1]))
    assert str(caught.value) == (
        "rank 1 registers 3 instructions without backward:1:1, and the schedule 1F1B runs it for each of 2 microbatches"
    )


def test_early_recomputation_counts_as_a_backward() -> None:
    whole = rank_registration(1)
    texts = (*whole.instructions[:-1], "forwardbackward:1:1")
    assert state_of(replace(whole, instructions=texts)).ranks


def test_a_job_of_too_many_ranks_is_refused() -> None:
    with pytest.raises(RegistrationConflictError, match="found 5000 ranks, expected at most 4096"):
        state_of(rank_registration(0, data_parallel=2_500))


def test_a_repeated_registration_changes_nothing() -> None:
    before = state_of(rank_registration(0), rank_registration(1))
    again = Registrar(before, START + timedelta(seconds=9))
    again.merge(rank_registration(1))
    assert again.state == before


def test_silent_ranks_of_an_earlier_start_give_way_to_another_configuration() -> None:
    before = state_of(*(rank_registration(rank, data_parallel=2) for rank in range(4)))
    registrar = Registrar(before, START + timedelta(seconds=31))
    registrar.merge(rank_registration(0, process="e" * 32))
    assert set(registrar.state.ranks) == {0}
    assert registrar.state.expected_ranks == 2


def test_a_rank_may_move_to_another_place_when_it_starts_again() -> None:
    before = state_of(rank_registration(0))
    moved = replace(rank_registration(1), rank=0, process="e" * 32)
    registrar = Registrar(before, START)
    registrar.merge(moved)
    registrar.merge(replace(rank_registration(0), rank=1, process="d" * 32))
    assert {rank: each.registration.pipeline_rank for rank, each in registrar.state.ranks.items()} == {0: 1, 1: 0}


def test_a_pipeline_of_too_many_instructions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registrations, "MAX_PIPELINE_INSTRUCTIONS", 7)
    with pytest.raises(
        RegistrationConflictError, match="which makes 8 of a pipeline with those of rank 0, expected at"
    ):
        state_of(rank_registration(0), rank_registration(1))


def test_an_attempt_registers_a_bounded_number_of_configurations() -> None:
    state = NEW_STATE
    for number in range(4):
        registrar = Registrar(state, START)
        registrar.merge(replace(rank_registration(0), model=f"model-{number}"))
        state = registrar.state
    registrar = Registrar(state, START)
    with pytest.raises(RegistrationConflictError) as caught:
        registrar.merge(replace(rank_registration(0), model="model-4"))
    assert str(caught.value) == (
        "rank 0 registers model 'model-4' with 2 ranks in 2 stages, and the attempt has registered 4 other "
        "configurations, expected at most 4; the next attempt may register it"
    )
    assert registrar.state == state
    # One that it had before is none more.
    registrar.merge(replace(rank_registration(0), model="model-1"))
    assert registrar.state.profile.key.model == "model-1"


def test_the_ranks_of_a_pipeline_register_a_bounded_number_of_lists_of_clocks() -> None:
    registrar = Registrar(NEW_STATE, START)
    for rank in range(8):
        registrar.merge(rank_registration(rank, data_parallel=5, clocks=(900, 1000 + rank)))
    with pytest.raises(RegistrationConflictError, match="expected at most 8 different lists of clocks in a pipeline"):
        registrar.merge(rank_registration(8, data_parallel=5, clocks=(900, 1410)))
    registrar.merge(rank_registration(8, data_parallel=5, clocks=(900, 1007)))
    assert len(registrar.state.ranks) == 9
