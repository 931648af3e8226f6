"""A plain PyTorch loop."""

from __future__ import annotations

import pytest

from support.local_runs.local_runs import LocalJob

pytestmark = pytest.mark.integrations

TRAINING = """
import nvml_simulator
import torch
import wattloop

with wattloop.Run() as run:
    torch.manual_seed(run.seed)
    inputs = torch.randn(256, 4)
    outputs = inputs @ torch.tensor([[1.0], [-2.0], [3.0], [-4.0]])
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * run.learning_rate_scale)
    for epoch in run.epochs():
        for batch in torch.randperm(256).split(run.batch_size):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs[batch]), outputs[batch]).backward()
            optimizer.step()
            nvml_simulator.occupy(0, work=300.0 * len(batch), intensity=0.8)
            run.step(len(batch))
        with torch.no_grad():
            loss = torch.nn.functional.mse_loss(model(inputs), outputs).item()
        run.report(metric=loss)
"""


def test_a_loop_trains_until_the_target_is_reached(local_job: LocalJob) -> None:
    target = {"metric": "loss", "threshold": "0.1", "direction": "Minimize"}
    local_job.job(TRAINING, objective={"target": target, "maxEpochs": 20})
    assert local_job.run("--recurrences", "2") == 0
    rows = local_job.rows()
    assert [row["outcome"] for row in rows] == ["reached", "reached"]
    assert all(float(row["energy_joules"]) > 0 for row in rows)
