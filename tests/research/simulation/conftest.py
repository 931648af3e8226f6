"""Two small traces with values that can be worked out by hand, and the command that simulates on them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from wattloop.commands.main import main

TRAIN = """dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch
digits,mlp,8,sgd,0.1,1,0.9,6
digits,mlp,8,sgd,0.1,2,0.9,
digits,mlp,8,sgd,0.1,10,0.9,8
digits,mlp,16,sgd,0.1,1,0.9,4
digits,mlp,16,sgd,0.1,2,0.9,5
digits,mlp,32,sgd,0.1,1,0.9,9
digits,mlp,64,sgd,0.1,1,0.9,2
digits,mlp,8,sgd,0.1,1,0.95,nan
digits,mlp,16,sgd,0.1,1,0.95,12
digits,mlp,32,sgd,0.1,1,0.95,7
digits,mlp,32,sgd,0.1,1,0.99,nan
"""
POWER = """dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power
digits,mlp,8,sgd,100,20,90
digits,mlp,8,sgd,200,12,170
digits,mlp,16,sgd,200,7,160
digits,mlp,16,sgd,100,10,95
digits,mlp,32,sgd,100,6,99
digits,mlp,32,sgd,200,5,150
digits,mlp,128,sgd,100,3,99
other,mlp,8,sgd,300,12,170
"""
Simulate = Callable[..., int]


@pytest.fixture
def traces(tmp_path: Path) -> tuple[Path, Path]:
    train, power = tmp_path / "train.csv", tmp_path / "power.csv"
    train.write_text(TRAIN)
    power.write_text(POWER)
    return train, power


@pytest.fixture
def simulate(traces: tuple[Path, Path], tmp_path: Path) -> Simulate:
    """Runs `wattloop simulate` on the small traces; keyword options replace or extend the defaults."""

    def run(**options: object) -> int:
        given: dict[str, object] = {
            "train": traces[0],
            "power": traces[1],
            "dataset": "digits",
            "network": "mlp",
            "optimizer": "sgd",
            "target_metric": 0.9,
            "max_epochs": 20,
            "default_batch_size": 16,
            "seeds": "1-2",
            "recurrences": 12,
            "output": tmp_path / "out.csv",
            **options,
        }
        arguments = ["simulate"]
        for name, value in given.items():
            if value is not None:
                arguments += [f"--{name.replace('_', '-')}", str(value)]
        return main(arguments)

    return run
