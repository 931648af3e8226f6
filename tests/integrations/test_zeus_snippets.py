"""Trainings in the forms that Zeus documents, with the import line changed, on simulated GPUs.

Each runs in a process forked from this one, which has imported PyTorch and what the trainings import of others.
"""

import importlib
import json
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch  # noqa: F401 - imported before trainings are forked

from support.agents.simulated_node import simulated_node
from support.forked_process import exit_codes, forked
from support.free_ports import free_port
from wattloop.gpus.agent import SOCKET_VARIABLE

pytestmark = [pytest.mark.integrations, pytest.mark.long, pytest.mark.timeout(600)]

# What stands in for the work of a step on a GPU: a twentieth of a second without a limit.
WORK = """
import os
import nvml_simulator
machine = nvml_simulator.Machine(os.environ[nvml_simulator.STATE_VARIABLE])
def work(gpu=0, share=1.0):
    machine.occupy(gpu, work=15.6 * share, intensity=0.9)
def held(gpu=0):
    return machine.describe().gpus[gpu].power_limit_watts
"""
WINDOWS = """
from zeus.monitor import ZeusMonitor
import torch

monitor = ZeusMonitor(gpu_indices=[0])
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
monitor.begin_window("training")
steps = []
for epoch in range(2):
    for _ in range(3):
        monitor.begin_window("step")
        loss = model(torch.rand(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        work()
        steps.append(monitor.end_window("step"))
training = monitor.end_window("training")
print(len(steps), training.total_energy >= 0.9 * sum(step.total_energy for step in steps) > 0, training.time > 0)
"""
# The loop of the ImageNet examples: one process, or one a GPU with DistributedDataParallel.
IMAGENET = """
from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer, MaxSlowdownConstraint
import sys
import torch
import torch.distributed as dist

rank, ranks = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
model = torch.nn.Linear(8, 2)
if ranks > 1:
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
monitor = ZeusMonitor(gpu_indices=[rank])
plo = GlobalPowerLimitOptimizer(
    monitor,
    optimum_selector=MaxSlowdownConstraint(factor=10.0),
    wait_steps=1,
    warmup_steps=1,
    profile_steps=2,
    pl_step=150,
    profile_path=sys.argv[1],
)
for epoch in range(3):
    plo.on_epoch_begin()
    for _ in range(5):
        plo.on_step_begin()
        optimizer.zero_grad()
        model(torch.rand(4, 8)).square().mean().backward()
        optimizer.step()
        work(rank, 1.0 + rank)
        plo.on_step_end()
    plo.on_epoch_end()
print(held(rank), [each.power_limit for each in plo.measurements])
if ranks > 1:
    dist.barrier()
    dist.destroy_process_group()
"""
TRAINER = """
from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit import HFGlobalPowerLimitOptimizer
import sys
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, index):
        return {"x": torch.full((8,), index / 48), "labels": torch.tensor(index % 2)}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)
    def forward(self, x, labels):
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

class Work(TrainerCallback):
    def on_step_end(self, args, state, control, **others):
        work()

monitor = ZeusMonitor(gpu_indices=[0])
optimizer = HFGlobalPowerLimitOptimizer(
    monitor, warmup_steps=1, profile_steps=2, pl_step=150, profile_path=sys.argv[1]
)
trainer = Trainer(
    model=Model(),
    args=TrainingArguments("out", num_train_epochs=1, per_device_train_batch_size=4, report_to=[], use_cpu=True),
    train_dataset=Data(),
    callbacks=[optimizer, Work()],
)
trainer.train()
print(held(), [each.power_limit for each in optimizer.optimizer.measurements])
"""

SFT_TRAINER = """
from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit import HFGlobalPowerLimitOptimizer
import sys
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import SFTConfig, SFTTrainer

words = ["<pad>", "<eos>", "a", "step", "of", "tuning", "uses", "energy"]
tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="a"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
processing = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="a")
sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
model = LlamaForCausalLM(LlamaConfig(vocab_size=len(words), num_key_value_heads=2, **sizes))

class Work(TrainerCallback):
    def on_step_end(self, args, state, control, **others):
        work()

monitor = ZeusMonitor(gpu_indices=[0])
optimizer = HFGlobalPowerLimitOptimizer(
    monitor, warmup_steps=1, profile_steps=2, pl_step=150, profile_path=sys.argv[1]
)
trainer = SFTTrainer(
    model=model,
    args=SFTConfig(
        "out", num_train_epochs=1, per_device_train_batch_size=2, max_length=16, report_to=[], use_cpu=True, bf16=False
    ),
    train_dataset=Dataset.from_dict({"text": ["a step of tuning uses energy"] * 24}),
    processing_class=processing,
    peft_config=LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
    callbacks=[optimizer, Work()],
)
trainer.train()
print(held(), [each.power_limit for each in optimizer.optimizer.measurements])
"""


def changed(snippet: str) -> str:
    """The snippet with its import lines changed, and the work of a simulated GPU."""
    lines = [
        line.replace("from zeus.monitor import", "from wattloop.compat.zeus import").replace(
            "from zeus.optimizer.power_limit import", "from wattloop.compat.zeus import"
        )
        for line in snippet.splitlines()
    ]
    assert "import zeus" not in "\n".join(lines)
    return WORK + "\n".join(lines)


def environment(state: Path, socket: Path) -> dict[str, str]:
    import nvml_simulator  # noqa: PLC0415

    return {**nvml_simulator.environment(state), SOCKET_VARIABLE: str(socket)}


def started(snippet: str, folder: Path, name: str, variables: Mapping[str, str], *arguments: str) -> int:
    """Run a snippet as a script in a forked process with these variables; its output goes to the file of that name."""

    def script() -> int:
        os.chdir(folder)
        os.environ.update(variables)
        sys.argv = ["training.py", *arguments]
        # As in an interpreter of its own, where no warning is an error.
        warnings.resetwarnings()
        exec(compile(changed(snippet), "training.py", "exec"), {"__name__": "__main__"})
        return 0

    return forked(script, folder / name, folder / f"{name}-errors")


def ended(processes: Mapping[str, int], folder: Path) -> list[str]:
    """Wait until all snippets have ended well; returns what they printed."""
    assert not any(exit_codes(list(processes.values()))), [
        (folder / f"{name}-errors").read_text() for name in processes
    ]
    return [(folder / name).read_text() for name in processes]


def run(snippet: str, folder: Path, *arguments: str) -> str:
    with simulated_node(1, "wall") as node:
        process = started(snippet, folder, "output", environment(node.state, node.socket), *arguments)
        (printed,) = ended({"output": process}, folder)
        return printed


@pytest.fixture(scope="module")
def trainers_imported() -> None:
    """Both trainings import these, which takes six seconds."""
    with warnings.catch_warnings():
        warnings.resetwarnings()
        for module in ("transformers.trainer", "datasets", "peft", "trl.trainer.sft_trainer"):
            importlib.import_module(module)


def test_the_windows_of_a_training_run(tmp_path: Path) -> None:
    assert run(WINDOWS, tmp_path) == "6 True True\n"


def test_the_imagenet_training_on_one_gpu_runs(tmp_path: Path) -> None:
    assert run(IMAGENET, tmp_path, "profile.json") == "100.0 [400, 250, 100]\n"


@pytest.mark.usefixtures("trainers_imported")
@pytest.mark.parametrize("snippet", [TRAINER, SFT_TRAINER], ids=["Trainer", "SFTTrainer with LoRA"])
def test_the_trainers_of_hugging_face_and_trl_run(tmp_path: Path, snippet: str) -> None:
    held, measured = run(snippet, tmp_path, "profile.json").splitlines()[-1].split(" ", 1)
    assert measured == "[400, 250, 100]"
    assert float(held) in {400, 250, 100}


def test_the_imagenet_training_on_two_ranks_measures_together(tmp_path: Path) -> None:
    with simulated_node(2, "wall") as node:
        common = environment(node.state, node.socket) | {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        ranks = {
            f"rank-{rank}": started(
                IMAGENET, tmp_path, f"rank-{rank}", common | {"RANK": rank, "LOCAL_RANK": rank}, "profile.json"
            )
            for rank in "01"
        }
        printed = ended(ranks, tmp_path)
    assert printed == ["100.0 [400, 250, 100]\n"] * 2
    measurements = json.loads((tmp_path / "profile.json").read_text())["measurements"]
    # The slower rank has twice the work: its time counts, and the energies of both are added.
    assert all(each["energy"] > 0 and each["time"] > 2 * 2 * 0.045 for each in measurements)
