"""Trains ShuffleNetV2, and probes batch sizes, learning rates, dropouts and power limits on the way.

`wattloop run examples/probes/job.yaml --recurrences 1 --simulated-gpus 1`
"""

from __future__ import annotations

import os

import torch
from shufflenet import ShuffleNetV2, made_images
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import wattloop
from wattloop.integrations.pytorch_training_probe import TrainingProbe
from wattloop.run.probe_grid import ProbePlan

# An A100 does 312 TFLOP/s; a step has a fixed part too. For simulated GPUs alone.
TERAFLOP_PER_IMAGE = 4.0
FIXED_IMAGES = 32
PLAN = ProbePlan(
    at=[0.6, 0.3],
    batch_sizes=[32, 64, 128],
    parameters={"learning_rate": [0.002, 0.005], "dropout": [0.0]},
    power_limits_watts=[300, 200],
    steps=3,
    warm_up_steps=1,
    max_time_percent=100,
)


def occupy_simulated_gpu(images: int) -> None:
    """Put the load of a step on the simulated GPU, if there is one."""
    if os.environ.get("WATTLOOP_SIMULATED_GPUS_STATE"):
        import nvml_simulator  # noqa: PLC0415 - a real node has no simulator

        work = TERAFLOP_PER_IMAGE * (images + FIXED_IMAGES)
        nvml_simulator.occupy(0, work=work, intensity=images / (images + FIXED_IMAGES))


def main() -> None:
    """Train until the target."""
    with wattloop.Run(batch_size=64, max_epochs=30) as run:
        torch.manual_seed(run.seed)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        training, validation = made_images(1024, seed=1), made_images(512, seed=2)
        images, labels = (tensor.to(device) for tensor in validation.tensors)
        model = ShuffleNetV2(float(run.parameters.get("DROPOUT", "0.2"))).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=float(run.parameters.get("LEARNING_RATE", "0.001")))

        def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: list[torch.Tensor]) -> None:
            optimizer.zero_grad()
            cross_entropy(model(batch[0].to(device)), batch[1].to(device)).backward()
            optimizer.step()
            occupy_simulated_gpu(len(batch[0]))

        @torch.no_grad()
        def loss(model: torch.nn.Module) -> float:
            model.eval()
            return cross_entropy(model(images), labels).item()

        probe = TrainingProbe(
            run,
            model,
            optimizer,
            plan=PLAN,
            step=step,
            loss=loss,
            data=lambda samples: DataLoader(training, batch_size=samples, shuffle=True, drop_last=True),
        )
        for _ in run.epochs():
            model.train()
            for batch in probe.batches:
                step(model, optimizer, batch)
                run.step(len(batch[0]))
            model.eval()
            with torch.no_grad():
                accuracy = (model(images).argmax(dim=1) == labels).float().mean().item()
            print(f"accuracy={accuracy:.3f} with {probe.configuration}", flush=True)
            run.report(metric=accuracy)
            probe.on_validation(accuracy)


if __name__ == "__main__":
    main()
