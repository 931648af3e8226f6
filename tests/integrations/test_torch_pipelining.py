"""The adapter for torch.distributed.pipelining: real schedules on gloo, without and with it."""

import warnings
from typing import Any

import pytest
import torch
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.pipelining.schedules import PipelineScheduleSingle

from support.torch_pipelines.compared import CASES, RANKS, STEPS, Compared, RecordingPipeline, compare
from support.torch_pipelines.forked_ranks import run_ranks
from wattloop.errors import UsageError
from wattloop.integrations.torch_pipelining import follow, stream_synchronization
from wattloop.integrations.torch_schedule import instructions_of, replica_of, schedule_name
from wattloop_planner.frequency.pipeline.schedules import GPipe, Interleaved, OneForwardOneBackward, Schedule

pytestmark = pytest.mark.integrations

NAMES = [name for name, _, _ in CASES]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Compared]]:
    """For each rank, by schedule, a training without and one with the adapter."""
    with warnings.catch_warnings():
        # As in an interpreter of its own, where no warning is an error.
        warnings.resetwarnings()
        return run_ranks(RANKS, compare, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", NAMES)
def test_losses_gradients_and_outputs_are_the_same_bit_for_bit(results: list[dict[str, Compared]], name: str) -> None:
    for rank, by_name in enumerate(results):
        plain, followed = by_name[name].plain, by_name[name].followed
        assert len(plain.gradients) > 0
        assert all(map(torch.equal, plain.gradients, followed.gradients))
        assert [len(losses) for losses in plain.losses] == [len(losses) for losses in followed.losses]
        for one, other in zip(plain.losses, followed.losses, strict=True):
            assert all(map(torch.equal, one, other))
        if rank == RANKS - 1:
            assert len(plain.losses[0]) > 0
            assert plain.evaluation is not None
            assert followed.evaluation is not None
            assert torch.equal(plain.evaluation, followed.evaluation)


@pytest.mark.parametrize("name", NAMES)
def test_each_step_is_an_iteration_of_the_instructions_known_in_advance(
    results: list[dict[str, Compared]], name: str
) -> None:
    for by_name in results:
        compared = by_name[name]
        # The evaluation at the end is none.
        assert compared.events == ["iteration", *compared.instructions, "end"] * STEPS


@pytest.mark.parametrize(
    ("name", "planned", "shown"),
    [
        ("Schedule1F1B", OneForwardOneBackward(4, 16), "1F1B"),
        ("ScheduleGPipe", GPipe(4, 8), "GPipe"),
        ("ScheduleInterleaved1F1B", Interleaved(4, 8, 2), "Interleaved1F1B"),
    ],
)
def test_the_instructions_are_in_the_planner_s_order(
    results: list[dict[str, Compared]], name: str, planned: Schedule, shown: str
) -> None:
    for rank, by_name in enumerate(results):
        order = planned.stage_order(rank)
        texts = [
            f"{planned.instructions[instruction]}:{rank + RANKS * chunk}:{microbatch}"
            for instruction, microbatch, chunk in zip(order.instructions, order.microbatches, order.chunks, strict=True)
        ]
        assert by_name[name].instructions == texts
        assert by_name[name].name == shown


def test_each_rank_finds_its_place(results: list[dict[str, Compared]]) -> None:
    for rank, by_name in enumerate(results):
        place = by_name["ScheduleInterleaved1F1B"].place
        assert (place.rank, place.pipeline_rank, place.pipeline_parallel) == (rank, rank, RANKS)
        assert (place.own_stages, place.stages) == ((rank, rank + RANKS), 2 * RANKS)
        assert (place.group_ranks, place.ranks) == (tuple(range(RANKS)), RANKS)


@pytest.mark.parametrize("ranks", [(0, 1, 3), (2, 1, 0), (1, 2), (0, 3)])
def test_an_arrangement_that_is_no_dimension_of_a_mesh_is_refused(ranks: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"no dimension of a device mesh; pass data_parallel"):
        replica_of(ranks, 4)


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 4, 1), (4, 1, 2), (3, 2, 1)])
def test_pipelines_of_a_mesh_are_numbered_from_0(shape: tuple[int, int, int]) -> None:
    mesh = torch.arange(torch.Size(shape).numel()).reshape(shape)
    pipelines = mesh.transpose(1, 2).reshape(-1, shape[1])
    found = [replica_of(ranks.tolist(), mesh.numel()) for ranks in pipelines]
    assert sorted(found) == list(range(shape[0] * shape[2]))


class OneStage:
    """As much of a stage as a schedule reads when it is made."""

    stage_index, num_stages, group_size, group_rank, is_last = 0, 1, 1, 0, True
    device = torch.device("cpu")
    submod = torch.nn.Identity()
    forward_one_chunk = PipelineStage.forward_one_chunk
    backward_one_chunk = PipelineStage.backward_one_chunk
    backward_weight_one_chunk = PipelineStage.backward_weight_one_chunk


class OwnSchedule(PipelineScheduleSingle):  # type: ignore[misc,unused-ignore]
    """A schedule of a user."""

    _step_microbatches = ScheduleGPipe._step_microbatches


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (object(), "found object, expected a schedule of torch.distributed.pipelining"),
        (ScheduleGPipe(OneStage(), 4), "has no loss_fn, so it only runs forward"),
        (OwnSchedule(OneStage(), 4, loss_fn=torch.nn.functional.mse_loss), "the order of OwnSchedule is unknown"),
    ],
)
def test_an_unsupported_schedule_is_refused(schedule: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        follow(schedule, RecordingPipeline())


class OfTheUser(ScheduleGPipe):
    """A user's variant of a schedule of PyTorch."""


class OfAVariant(OfTheUser):
    """A variant of that one."""


class OfItsOwn:
    """A schedule that derives from none of PyTorch."""


@pytest.mark.parametrize(
    ("kind", "name"), [(ScheduleGPipe, "GPipe"), (OfTheUser, "GPipe"), (OfAVariant, "GPipe"), (OfItsOwn, "OfItsOwn")]
)
def test_a_schedule_has_the_name_of_the_schedule_of_pytorch_that_it_derives_from(kind: type, name: str) -> None:
    assert schedule_name(kind.__new__(kind)) == name


def test_a_schedule_is_attached_once() -> None:
    schedule = ScheduleGPipe(OneStage(), 4, loss_fn=torch.nn.functional.mse_loss)
    follow(schedule, RecordingPipeline())
    with pytest.raises(UsageError, match="attached already"):
        follow(schedule, RecordingPipeline())


def test_stages_on_the_processor_need_no_synchronization() -> None:
    assert stream_synchronization(ScheduleGPipe(OneStage(), 4)) is None


def test_few_microbatches_are_all_sent_ahead() -> None:
    schedule = ScheduleGPipe(OneStage(), 2, loss_fn=torch.nn.functional.mse_loss)
    assert [each.text for each in instructions_of(schedule)] == [
        "forward:0:0",
        "forward:0:1",
        "backward:0:0",
        "backward:0:1",
    ]
