"""Energy windows beside PyTorch on a machine without CUDA, where `torch.cuda.synchronize` would raise an error."""

import torch

from wattloop import EnergyMonitor
from wattloop.energy_monitor.energy_monitor import synchronization


def test_pytorch_without_cuda_is_not_waited_for() -> None:
    assert not torch.cuda.is_initialized()
    synchronize = synchronization("torch")
    synchronize([0])
    monitor = EnergyMonitor(sync="torch")
    with monitor.window("step") as window:
        torch.zeros(8) @ torch.zeros(8)
    assert window.measurement.time_seconds > 0
    assert not torch.cuda.is_initialized()
