"""The trainings of examples/pipeline/models.py: parameters, losses, profiles and plans with real ranks on gloo.

Ranks are forked from this process, which has imported PyTorch and Transformers. What torchrun starts on two nodes,
test_pipeline_launch.py has.
"""

import csv
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import torch
import torch._dynamo
import torch.distributed.pipelining
import transformers.models.bert.modeling_bert
import transformers.models.gpt2.modeling_gpt2  # noqa: F401 - imported before ranks are forked

from support.agents.simulated_node import SimulatedNode, simulated_node
from support.free_ports import free_port
from wattloop.commands.main import main
from wattloop.pipeline import Instruction
from wattloop_planner.frequency.pipeline.schedules import EarlyRecomputation as PlannedSchedule

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline"
if str(EXAMPLE) not in sys.path:
    sys.path.append(str(EXAMPLE))

import early_recomputation  # noqa: E402
import models  # noqa: E402
import pipeline_training  # noqa: E402, F401 - what the ranks import is imported before they are forked
from model_catalogue import PUBLISHED_WIDTHS, TRANSFORMERS, Layer, model_named, parameter_count  # noqa: E402
from model_layers import TokenHead, make_layer  # noqa: E402

pytestmark = [pytest.mark.integrations, pytest.mark.long]

NARROW = ["--hidden-size", "32", "--blocks", "3", "--heads", "2", "--vocabulary", "64", "--sequence-length", "16"]
GPT = ["gpt3-small", "2", "4", *NARROW, "--learning-rate", "0.01"]
BERT = ["bert-base-uncased", *GPT[1:]]
IMAGES = ["wide-resnet50_1", "4", "2", "--image-size", "32", "--classes", "10", "--learning-rate", "0.0003"]
STEPS = ["--max-steps", "4", "--steps-per-epoch", "2"]
CLOCKS = (1410, 1110)
NAMES = [each.name for each in TRANSFORMERS] + [f"wide-resnet{depth}_{width}" for depth, width in PUBLISHED_WIDTHS]


def trained(folder: Path, ranks: int, arguments: Sequence[str], *nodes: Mapping[str, str]) -> tuple[str, list[int]]:
    """What the ranks of `models.py` print, and their exit codes, with the variables that torchrun sets.

    Args:
        folder: For their output.
        ranks: How many there are.
        arguments: Those of `models.py`.
        nodes: Further variables of each node, which all have as many ranks; default: one node without any.
    """
    port, log = free_port(), folder / "output"
    nodes = nodes or ({},)
    local_ranks = ranks // len(nodes)
    children = []
    for rank in range(ranks):
        child = os.fork()
        if not child:
            node, local_rank = divmod(rank, local_ranks)
            launched = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": local_ranks}
            launched |= {"GROUP_RANK": node, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            os.environ.update({name: str(value) for name, value in launched.items()} | dict(nodes[node]))
            _run_rank(log, arguments)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return log.read_text(), codes


def _run_rank(log: Path, arguments: Sequence[str]) -> None:
    code = 1
    try:
        stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for standard in (1, 2):
            os.dup2(stream, standard)
        sys.stdout = sys.stderr = os.fdopen(stream, "w", buffering=1)
        torch.set_num_threads(1)
        models.main(arguments)
        code = 0
    except BaseException:  # noqa: BLE001 - reported here, because a forked process must not return
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def losses(folder: Path, ranks: int, arguments: Sequence[str]) -> list[float]:
    folder.mkdir()
    text, codes = trained(folder, ranks, [*arguments, *STEPS])
    assert set(codes) == {0}, text
    found = [float(each) for each in re.findall(r"loss=([\d.]+)", text)]
    assert len(found) == 2
    return found


@pytest.fixture(scope="module")
def node() -> Iterator[SimulatedNode]:
    """Four GPUs in real time."""
    with simulated_node(4, clock="wall") as found:
        yield found


def on_gpus(node: SimulatedNode) -> dict[str, str]:
    return {"WATTLOOP_AGENT_SOCKET": str(node.socket), "WATTLOOP_SIMULATED_GPUS_STATE": str(node.state)}


@pytest.mark.parametrize("name", NAMES)
def test_the_layers_have_the_parameters_of_the_catalogue(name: str) -> None:
    model = model_named(name)
    counts: dict[Layer, int] = {}
    for number, layer in enumerate(model.layers):
        if layer not in counts:
            made = make_layer(model, number, torch.device("meta"), seed=0)
            counts[layer] = sum(parameter.numel() for parameter in made.parameters())
            if isinstance(made, TokenHead):
                # They are those of the token embedding.
                counts[layer] -= made.weight.numel()
    assert all(count == layer.parameters for layer, count in counts.items())
    assert sum(counts[layer] for layer in model.layers) == parameter_count(model)


@pytest.mark.parametrize("published", [GPT, BERT, IMAGES], ids=lambda arguments: arguments[0])
def test_losses_are_the_same_with_each_number_of_stages_and_each_schedule(tmp_path: Path, published: list[str]) -> None:
    published = [*published, "--seed", "1"]
    alone = losses(tmp_path / "alone", 1, published)
    # Sums have another order, so the digits that are printed are as good as equal.
    staged = losses(tmp_path / "staged", 2, published)
    assert staged == pytest.approx(alone, abs=2e-3)
    early = losses(tmp_path / "early", 2, [*published, "--train-schedule", "early_recompute_1f1b"])
    assert early == pytest.approx(staged, abs=2e-3)


def test_two_copies_of_a_pipeline_that_measures_its_balance_train_one_model(tmp_path: Path) -> None:
    arguments = [
        *GPT,
        "--seed",
        "1",
        "--pp",
        "2",
        "--dp",
        "2",
        "--partition-method",
        "measured",
        "--no-activation-checkpointing",
    ]
    found = losses(tmp_path / "copies", 4, arguments)
    assert found[-1] < found[0]
    printed = (tmp_path / "copies" / "output").read_text()
    assert "+measured+dp2+pp2+tp1+mbs2+nmb4+1f1b\n" in printed


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (2, 1), (4, 2), (4, 8)])
def test_early_recomputation_has_the_order_that_the_planner_plans(stages: int, microbatches: int) -> None:
    planned = PlannedSchedule(stages, microbatches)
    for stage in range(stages):
        order = planned.stage_order(stage)
        expected = [
            Instruction(planned.instructions[kind], stage, microbatch)
            for kind, microbatch in zip(order.instructions.tolist(), order.microbatches.tolist(), strict=True)
        ]
        assert early_recomputation.stage_order(stage, stages, microbatches) == expected


@pytest.mark.parametrize(
    ("schedule", "microbatches", "kinds"),
    [
        ("1f1b", 1, {"0": {"forward", "backward"}, "1": {"forward", "backward"}}),
        (
            "early_recompute_1f1b",
            2,
            {"0": {"forward", "recomputation", "backward", "forwardbackward"}, "1": {"forward", "forwardbackward"}},
        ),
    ],
)
def test_a_profile_of_few_microbatches_has_each_instruction_at_each_clock_of_the_chosen_gpus(
    node: SimulatedNode, tmp_path: Path, schedule: str, microbatches: int, kinds: dict[str, set[str]]
) -> None:
    before = [gpu.energy_microjoules for gpu in node.gpus.describe().gpus]
    arguments = [*GPT, "--profile", str(tmp_path), "--num-prof-steps", "40", "--profile-clocks", "1410,1110"]
    arguments[2] = str(microbatches)
    variables = on_gpus(node) | {"CUDA_VISIBLE_DEVICES": "1,3"}
    text, codes = trained(tmp_path, 2, [*arguments, "--train-schedule", schedule], variables)
    assert codes == [0, 0], text
    (path,) = tmp_path.glob("*.csv")
    assert f"profile: {path}" in text
    sizes = "hiddensize32-blocks3-heads2-vocabulary64-sequencelength16"
    assert path.name == f"torch+gpt3-small-{sizes}+uniform_transformer+dp1+pp2+tp1+mbs2.csv"
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    measured = {(row["stage"], row["instruction"], int(row["frequency"])) for row in rows}
    assert measured == {(stage, kind, clock) for stage, own in kinds.items() for kind in own for clock in CLOCKS}
    assert {row["model"] for row in rows} == {f"gpt3-small-{sizes}+custom:0,4,6+mbs2"}
    # The GPUs between them stayed idle, and no clock is locked.
    gpus = node.gpus.describe().gpus
    used = [gpu.energy_microjoules - energy for gpu, energy in zip(gpus, before, strict=True)]
    assert min(used[1], used[3]) > max(used[0], used[2])
    assert [gpu.locked_graphics_clocks_megahertz for gpu in gpus] == [None] * 4


def test_a_profile_without_an_agent_is_an_error(tmp_path: Path) -> None:
    text, codes = trained(tmp_path, 1, [*GPT[:2], "1", *GPT[3:], "--profile", str(tmp_path)])
    assert codes == [1]
    assert "no rank may hold a clock of its GPU; start the node's agent" in text


def test_two_nodes_train_one_pipeline_under_early_recomputation(node: SimulatedNode, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    arguments = [*GPT, "--train-schedule", "early_recompute_1f1b", *STEPS, "--dumps", str(runs)]
    with simulated_node(1, clock="wall") as other:
        text, codes = trained(tmp_path, 2, arguments, on_gpus(node), on_gpus(other))
    assert codes == [0, 0], text
    assert "epoch 2 step 4 loss=" in text
    (folder,) = (runs / "A100" / "dp1+pp2+tp1").iterdir()
    assert folder.name.endswith("+uniform_transformer+dp1+pp2+tp1+mbs2+nmb4+early_recompute_1f1b")
    ranks = json.loads((folder / "0.prof.json").read_text())
    assert [each["rank"] for each in ranks] == [0, 1]
    kinds = [set(each["time_breakdown"]) for each in ranks]
    assert kinds == [{"forward", "forwardbackward", "recomputation", "backward"}, {"forward", "forwardbackward"}]


def test_plans_and_a_baseline_of_the_trainer_are_an_experiment_with_a_saving(
    node: SimulatedNode, tmp_path: Path
) -> None:
    plans, runs, output = tmp_path / "plans", tmp_path / "runs", tmp_path / "evaluation"
    plans.mkdir()
    for number, clock in enumerate((1110, 1410)):
        (plans / f"freqs_pipeline_{number:05d}.py").write_text(repr([[clock] * 8] * 2))
    arguments = [*GPT, "--num-prof-steps", "8", "--dumps", str(runs)]
    for options in (["--plan", str(plans)], ["--baseline", "zeus-global", "--baseline-limits", "400,250"]):
        # It ends by itself, without --max-steps.
        text, codes = trained(tmp_path, 2, [*arguments, *options], on_gpus(node))
        assert codes == [0, 0], text
    assert main(["pipeline", "evaluate", str(runs), "--output", str(output)]) == 0
    with (output / "intrinsic.csv").open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    # The clocks of runs 2 and 3 differ by less than a busy machine does.
    assert (row["gpu"], row["parallelism"], row["run"] in {"2", "3"}) == ("A100", "dp1+pp2+tp1", True)
    assert row["base_source"].endswith("+mbs2+nmb4+ZeusGlobalPowerLimit")
    assert float(row["base_energy_joules"]) > 0
