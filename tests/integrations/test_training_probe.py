"""Probes in a training: with PyTorch, a real agent and simulated GPUs."""

import copy
import csv
import json
import os
import random
import signal
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import torch._dynamo  # imported before ranks are forked
from torch.utils.data import DataLoader, TensorDataset

import nvml_simulator
from support.agents.simulated_node import SimulatedNode, simulated_node
from support.forked_process import exit_codes, forked
from support.free_ports import free_port
from support.reporting.report_server import ReportServer
from wattloop import Run
from wattloop.commands.main import main
from wattloop.errors import UsageError
from wattloop.integrations.pytorch_training_probe import TrainingProbe
from wattloop.run.probe_grid import ProbedConfiguration, ProbePlan
from wattloop.wire.training_messages import ProbeReport

pytestmark = pytest.mark.integrations

LOADERS_SEED = 3
PLAN = ProbePlan(
    at=(0.5,),
    batch_sizes=(8, 16),
    parameters={"learning_rate": ("0.001", "0.05"), "dropout": ("0.2", "0.5")},
    power_limits_watts=(300, 200),
    steps=4,
    warm_up_steps=1,
    max_time_percent=100.0,
)
NODE_WORK = 312.0  # teraflop of an A100 in a second


class Node:
    """Simulated GPUs and the socket of their agent."""

    def __init__(self, gpus: nvml_simulator.Machine, socket: Path, state: Path) -> None:
        self.gpus, self.socket, self.state = gpus, socket, state


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with simulated_node(1) as simulated:
        yield Node(simulated.gpus, simulated.socket, simulated.state)


class Training:
    """A small network with dropout, batch normalisation and Adam."""

    def __init__(self, node: Node) -> None:
        torch.manual_seed(7)
        random.seed(7)
        numpy.random.seed(7)
        self.node = node
        inputs = torch.randn(64, 8)
        self.set = TensorDataset(inputs, inputs @ torch.randn(8, 1))
        self.generator = torch.Generator().manual_seed(LOADERS_SEED)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1)
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.001)

    def data(self, samples: int) -> DataLoader[Any]:
        return DataLoader(self.set, batch_size=samples, shuffle=True, generator=self.generator)

    def step(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        random.random()
        numpy.random.random()
        # A second of an A100 for a batch of 8, which a lower limit slows down little.
        self.node.gpus.occupy([0], work=NODE_WORK * (len(batch[0]) + 8) / 16, intensity=0.4)
        return loss.item()

    def loss(self, model: torch.nn.Module) -> float:
        model.eval()
        with torch.no_grad():
            return torch.nn.functional.mse_loss(model(self.set.tensors[0]), self.set.tensors[1]).item()

    def probe(self, run: Run, plan: ProbePlan = PLAN, **options: Any) -> TrainingProbe:
        options = {"plan": plan, "step": self.step, "loss": self.loss, "data": self.data, **options}
        return TrainingProbe(run, self.model, self.optimizer, **options)

    def epoch(self, batches: Any, run: Run) -> list[float]:
        self.model.train()
        losses = []
        for batch in batches:
            losses.append(self.step(self.model, self.optimizer, batch))
            run.step(len(batch[0]))
        return losses

    def state(self) -> list[Any]:
        return [
            copy.deepcopy(self.model.state_dict()),
            copy.deepcopy(self.optimizer.state_dict()),
            [parameter.grad.clone() for parameter in self.model.parameters() if parameter.grad is not None],
            [module.p for module in self.model.modules() if isinstance(module, torch.nn.Dropout)],
            torch.default_generator.get_state(),
            self.generator.get_state(),
            random.getstate(),
            numpy.random.get_state(),
        ]


def equal(one: Any, other: Any) -> bool:
    """Whether two nested states are equal bit for bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, numpy.ndarray):
        return bool((one == other).all())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


@contextmanager
def running(node: Node, url: str = "", **variables: str) -> Iterator[Run]:
    environment = {
        "WATTLOOP_JOB": "team/job",
        "WATTLOOP_RECURRENCE": "job-0-0",
        "WATTLOOP_BATCH_SIZE": "8",
        "WATTLOOP_PER_DEVICE_BATCH_SIZE": "8",
        "WATTLOOP_MAX_EPOCHS": "6",
        "WATTLOOP_TARGET_METRIC": "accuracy",
        "WATTLOOP_TARGET_THRESHOLD": "0.9",
        "WATTLOOP_PARAM_LEARNING_RATE": "0.001",
        "WATTLOOP_PARAM_DROPOUT": "0.2",
        "WATTLOOP_AGENT_SOCKET": str(node.socket),
        "WATTLOOP_REPORT_URL": url,
        **variables,
    }
    with Run(environment={name: value for name, value in environment.items() if value}) as run:
        yield run


def trained(training: Training, run: Run, metrics: Sequence[float], probe: TrainingProbe) -> list[list[float]]:
    """The losses of epochs with these metrics."""
    losses = []
    for epoch in run.epochs():
        if epoch >= len(metrics):
            break
        losses.append(training.epoch(probe.batches, run))
        run.report(metric=metrics[epoch])
        probe.on_validation(metrics[epoch])
    return losses


def last_probes(server: ReportServer) -> ProbeReport:
    return ProbeReport.from_json(server.reports[-1]["probes"])


def test_the_whole_grid_is_tried_and_the_training_goes_on_with_the_cheapest(node: Node, tmp_path: Path) -> None:
    training = Training(node)
    with running(node) as run:
        probe = training.probe(run, trials_file=tmp_path / "trials.jsonl")
        for metric in (0.1, 0.2):
            training.epoch(probe.batches, run)
            probe.on_validation(metric)
        assert not (tmp_path / "trials.jsonl").exists()
        before = training.state()
        probe.on_validation(0.55)
        # The time of the training bounds the trials: the grid has 2 sizes, 2 rates, 2 dropouts, and no limit or 2.
        trials = [json.loads(line) for line in (tmp_path / "trials.jsonl").read_text().splitlines()]
        assert 2 <= len(trials) <= 24
        costs = [
            (0.5 * trial["energy_joules"] + 0.5 * 400 * trial["time_seconds"]) / -trial["loss_change"]
            if trial["loss_change"] < 0
            else float("inf")
            for trial in trials
        ]
        best = trials[costs.index(min(costs))]["configuration"]
        chosen = probe.configuration
        assert json.loads(json.dumps(best)) == json.loads(json.dumps(vars(chosen)))
        after = training.state()
        rate, dropout = (float(value) for _, value in chosen.parameters)
        assert training.optimizer.param_groups[0]["lr"] == rate
        assert after[3] == [dropout]
        assert run.gpus.limit_watts == chosen.power_limit_watts
        assert run.batch_size == chosen.batch_size
        # All else is as before, bit for bit.
        after[1]["param_groups"][0]["lr"] = before[1]["param_groups"][0]["lr"]
        after[3] = before[3]
        assert equal(after, before)
        # A threshold is crossed once.
        probe.on_validation(0.6)
        assert len((tmp_path / "trials.jsonl").read_text().splitlines()) == len(trials)


def test_a_training_whose_probe_changes_nothing_goes_on_as_if_there_was_none(node: Node) -> None:
    metrics = (0.1, 0.55, 0.6, 0.7)
    expected = Training(node)
    with running(node, WATTLOOP_ADVISE="1") as run:
        losses = trained(expected, run, metrics, expected.probe(run))
    training = Training(node)
    # A rate at which every loss explodes never is the best.
    plan = ProbePlan(at=(0.5,), parameters={"learning_rate": ("1e9", "1e12")}, steps=3, max_time_percent=100.0)
    with running(node) as run:
        probe = training.probe(run, plan)
        assert trained(training, run, metrics, probe) == losses
        assert dict(probe.configuration.parameters)["learning_rate"] == "0.001"
    assert equal(training.state(), expected.state())


def test_the_trials_are_reported_and_stay_within_their_share_of_the_time(
    node: Node, report_server: ReportServer
) -> None:
    plan = ProbePlan(at=(0.5, 0.3), batch_sizes=(8, 16, 32, 64), steps=2, warm_up_steps=0, max_time_percent=40.0)
    training = Training(node)
    with running(node, report_server.url) as run:
        probe = training.probe(run, plan)
        start = run.gpus.totals()
        trained(training, run, (0.1, 0.4, 0.55, 0.6), probe)
        end = run.gpus.totals()
    assert start is not None
    assert end is not None
    report = last_probes(report_server)
    assert [choice.threshold for choice in report.choices] == [0.3, 0.5]
    assert report.trials == sum(choice.trials for choice in report.choices)
    assert 0 < report.energy_joules < end.energy_joules - start.energy_joules
    own_seconds = end.time_seconds - start.time_seconds - report.time_seconds
    assert 0 < report.time_seconds <= 0.4 * own_seconds
    assert {each["batch_size"] for each in report_server.reports} == {8}


def test_too_large_a_grid_is_thinned_and_says_so(node: Node, report_server: ReportServer) -> None:
    plan = ProbePlan(at=(0.5,), batch_sizes=(8, 16, 32), steps=1, max_trials=2, max_time_percent=100.0)
    training = Training(node)
    with running(node, report_server.url) as run:
        trained(training, run, (0.1, 0.55, 0.6), training.probe(run, plan))
    report = last_probes(report_server)
    assert report.trials == 2
    assert "max_trials allows 2 of 3 combinations" in report.problem


def test_a_limit_that_may_not_be_held_is_not_tried(node: Node, report_server: ReportServer) -> None:
    plan = ProbePlan(at=(0.5,), power_limits_watts=(9000, 300), steps=2, max_time_percent=100.0)
    training = Training(node)
    with running(node, report_server.url) as run:
        trained(training, run, (0.1, 0.55, 0.6), training.probe(run, plan))
    report = last_probes(report_server)
    assert report.choices[0].combinations == 2
    assert "power_limits_watts: 9000 W is not tried: 100 to 400 W may be held" in report.problem


def test_without_an_agent_nothing_is_tried(node: Node, report_server: ReportServer) -> None:
    training = Training(node)
    with running(node, report_server.url, WATTLOOP_AGENT_SOCKET="") as run:
        probe = training.probe(run)
        before = probe.configuration
        trained(training, run, (0.1, 0.55, 0.6), probe)
        assert probe.configuration == before
    report = last_probes(report_server)
    assert report.trials == 0
    assert "no energy is measured" in report.problem


@pytest.mark.parametrize("metrics", [(0.1, 0.2, 0.4), (0.1, 0.95), (float("nan"), 0.1)], ids=["low", "target", "nan"])
def test_no_probe_without_a_threshold_that_is_crossed_before_the_target(
    node: Node, tmp_path: Path, metrics: tuple[float, ...]
) -> None:
    training = Training(node)
    with running(node) as run:
        trained(training, run, metrics, training.probe(run, trials_file=tmp_path / "trials.jsonl"))
    assert not (tmp_path / "trials.jsonl").exists()


def test_a_metric_that_falls_crosses_falling_thresholds(node: Node, report_server: ReportServer) -> None:
    plan = ProbePlan(at=(1.0, 2.0), batch_sizes=(8, 16), steps=1, max_time_percent=100.0)
    falling = {"WATTLOOP_TARGET_DIRECTION": "Minimize", "WATTLOOP_TARGET_THRESHOLD": "0.1"}
    training = Training(node)
    with running(node, report_server.url, **falling) as run:
        trained(training, run, (3.0, 1.9, 1.8, 0.9), training.probe(run, plan))
    report = last_probes(report_server)
    assert [choice.threshold for choice in report.choices] == [2.0, 1.0]


def test_an_attempt_that_measures_power_limits_is_not_probed_and_says_so(
    node: Node, report_server: ReportServer
) -> None:
    training = Training(node)
    with running(node, report_server.url, WATTLOOP_PROFILE_POWER_LIMITS="1") as run:
        trained(training, run, (0.1, 0.55, 0.6), training.probe(run))
    report = last_probes(report_server)
    assert report.trials == 0
    assert "measures power limits" in report.problem


def test_wrong_use_says_what_was_meant(node: Node) -> None:
    training = Training(node)
    momentum = ProbePlan(at=(0.5,), parameters={"momentum": (0.8, 0.9)})
    with running(node) as run:
        with pytest.raises(UsageError, match=r"pass apply=\{'momentum'"):
            training.probe(run, momentum)
        with pytest.raises(UsageError, match="parameters has momentum, and the job has no such parameter"):
            training.probe(run, momentum, apply={"momentum": lambda *_: None})
        with pytest.raises(
            UsageError, match=r"at has 0\.9; it must be a value that the metric comes to before the targ"
        ):
            training.probe(run, replace(PLAN, at=(0.5, 0.9)))
    with pytest.raises(UsageError, match="inside of `with run:`"):
        training.probe(run)


def test_a_checkpoint_keeps_what_was_chosen_and_the_thresholds_that_are_left(node: Node) -> None:
    plan = ProbePlan(at=(0.3, 0.5), parameters={"dropout": ("0.2", "0.5")}, steps=1, max_time_percent=100.0)
    state = {"left": [0.5], "batch_size": 8, "parameters": [["dropout", "0.5"]], "power_limit_watts": 300.0}
    training = Training(node)
    with running(node) as run:
        probe = training.probe(run, plan)
        probe.load_state_dict(state)
        assert probe.configuration == ProbedConfiguration(8, (("dropout", "0.5"),), 300.0)
        assert run.gpus.limit_watts == 300.0
        assert training.state()[3] == [0.5]
        assert json.loads(json.dumps(probe.state_dict())) == state


def train_with_checkpoints(node: Node, folder: Path, *, name: str, killed: bool) -> int:
    """Train in a process of its own, from the checkpoint on if there is one; prints the thresholds that are left."""
    checkpoint = folder / "checkpoint.pt"
    with nvml_simulator.Machine(node.state) as gpus, running(Node(gpus, node.socket, node.state)) as run:
        training = Training(Node(gpus, node.socket, node.state))
        stepped: list[torch.nn.Module] = []

        def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> None:
            stepped.append(model)
            if killed and model is not training.model and len({id(each) for each in stepped}) > 3:
                os.kill(os.getpid(), signal.SIGKILL)
            training.step(model, optimizer, batch)

        probe = training.probe(run, step=step, trials_file=folder / f"{name}.jsonl")
        if checkpoint.exists():
            stored = torch.load(checkpoint, weights_only=False)
            training.model.load_state_dict(stored["model"])
            training.optimizer.load_state_dict(stored["optimizer"])
            probe.load_state_dict(stored["probe"])
        for metric in (0.2, 0.55, 0.6):
            for batch in probe.batches:
                step(training.model, training.optimizer, batch)
            parts = {"model": training.model, "optimizer": training.optimizer, "probe": probe}
            torch.save({part: value.state_dict() for part, value in parts.items()}, checkpoint)
            probe.on_validation(metric)
        print(json.dumps(probe.state_dict()["left"]))
    return 0


def test_a_training_that_is_killed_in_a_probe_begins_it_again(node: Node, tmp_path: Path) -> None:
    def train(name: str, *, killed: bool) -> int:
        def call() -> int:
            return train_with_checkpoints(node, tmp_path, name=name, killed=killed)

        (code,) = exit_codes([forked(call, tmp_path / name, tmp_path / f"{name}-errors")])
        return code

    assert train("killed", killed=True) == -signal.SIGKILL, (tmp_path / "killed-errors").read_text()
    before = (tmp_path / "killed.jsonl").read_text().splitlines()
    assert train("resumed", killed=False) == 0, (tmp_path / "resumed-errors").read_text()
    assert json.loads((tmp_path / "resumed").read_text()) == []
    after = (tmp_path / "resumed.jsonl").read_text().splitlines()
    assert 0 < len(before) < len(after)
    assert json.loads(after[0])["threshold"] == 0.5


def train_rank(node: SimulatedNode, folder: Path, rank: int, port: int) -> int:
    """Train in a process of its own as one of two ranks; writes what it goes on with."""
    # As in an interpreter of its own, where no warning is an error.
    warnings.resetwarnings()
    ranks = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {**ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.distributed.init_process_group("gloo")
    plan = ProbePlan(
        at=(0.5,),
        batch_sizes=(8, 16),
        power_limits_watts=(300, 200),
        parameters={"learning_rate": ("0.001", "0.05")},
        steps=3,
        warm_up_steps=1,
        max_time_percent=100.0,
    )
    with nvml_simulator.Machine(node.state) as gpus:
        own = Node(gpus, node.socket, node.state)
        with running(own, **ranks) as run:
            training = Training(own)
            model = torch.nn.parallel.DistributedDataParallel(training.model)

            def step(copied: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> None:
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(copied(batch[0]), batch[1]).backward()
                optimizer.step()
                gpus.occupy([rank], work=NODE_WORK * (len(batch[0]) + 8) / 16, intensity=0.4 + 0.2 * rank)

            options: dict[str, Any] = {"plan": plan, "step": step, "loss": training.loss, "data": training.data}
            trials_file = folder / f"trials-{rank}.jsonl"
            probe = TrainingProbe(run, model, training.optimizer, **options, trials_file=trials_file)
            for metric in (0.2, 0.55, 0.6):
                for batch in probe.batches:
                    step(model, training.optimizer, batch)
                # Only the metric of rank 0 counts.
                probe.on_validation(metric if rank == 0 else None)
            weights = [parameter.detach().flatten().tolist() for parameter in training.model.parameters()]
            found = [str(probe.configuration), run.gpus.limit_watts, weights, run.batch_size]
            (folder / f"rank-{rank}.json").write_text(json.dumps(found))
            torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    return 0


def test_two_ranks_try_the_same_and_go_on_with_the_same(tmp_path: Path) -> None:
    with simulated_node(2) as simulated:
        port, log = free_port(), tmp_path / "log"
        calls = [partial(train_rank, simulated, tmp_path, rank, port) for rank in range(2)]
        codes = exit_codes([forked(call, log, log) for call in calls])
    assert codes == [0, 0], log.read_text()
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert not (tmp_path / "trials-1.jsonl").exists()
    trials = (tmp_path / "trials-0.jsonl").read_text().splitlines()
    assert len(trials) >= 2


def test_the_example_reaches_its_target_and_the_history_shows_its_trials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = Path(__file__).parents[2] / "examples" / "probes" / "job.yaml"
    output = tmp_path / "output"
    words = ["run", str(manifest), "--output", str(output), "--simulated-gpus", "1", "--recurrences", "1"]
    assert main(words) == 0
    with (output / "recurrences.csv").open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert row["outcome"] == "reached"
    assert int(row["probe_trials"]) >= 4
    own_seconds = float(row["time_seconds"]) - float(row["probe_time_seconds"])
    assert 0 < float(row["probe_time_seconds"]) <= own_seconds
    assert 0 < float(row["probe_energy_joules"]) < float(row["energy_joules"])
    capsys.readouterr()
    assert main(["history", str(output)]) == 0
    assert "trials" in capsys.readouterr().out
