"""The batch size and the epochs are found by the names that scripts give them, and no other number is."""

import copy
from typing import Any

import pytest

from wattloop_operator.conversion.training_arguments import find_arguments, replace_arguments


def container(command: str | list[str]) -> dict[str, Any]:
    words = ["bash", "-c", command] if isinstance(command, str) else command
    return {"containers": [{"name": "train", "command": words}]}


@pytest.mark.parametrize(
    ("command", "batch_size", "epochs"),
    [
        ("yolo detect train model=a.pt epochs=100 batch=16 imgsz=640 | tee log", 16, 100),
        ("fairseq-train /data --max-epoch 25 --batch-size 64 --arch x", 64, 25),
        ("python main.py -a resnet50 -b 256 --epochs 90 -j 8", 256, 90),
        (["python", "main.py", "-b", "256", "--epochs", "90"], 256, 90),
        (["python", "main.py", "-b256", "-e5"], 256, None),
        ("python -m verl.trainer data.train_batch_size=1024 trainer.total_epochs=15", 1024, 15),
        ("python train_net.py --num-gpus 1 SOLVER.IMS_PER_BATCH 16 SOLVER.MAX_ITER 9000", 16, None),
        (["train_net.py", "SOLVER.IMS_PER_BATCH", "16"], 16, None),
        ("python train.py --trainer.max_epochs=5 --data.init_args.batch_size 32", 32, 5),
        ("python train.py ++trainer.max_epochs=5 +data.batch_size=32", 32, 5),
        ("python train.py --bs 32 --n-epochs 7", 32, 7),
        ("python train.py -bs=32", 32, None),
        ("python train.py --batch_size='32' --epochs \"4\"", 32, 4),
        ("python train.py --train_batch_size\t32", 32, None),
        ("python train.py train_dataloader.batch_size=8 val_dataloader.batch_size=1", 8, None),
        ("BATCH_SIZE=64 EPOCHS=3 ./train.sh", 64, 3),
        ("python train.py --batchSize 8 --maxEpochs 4", 8, 4),
        ("python train.py --batch-size \\\n  64 --epochs 3", 64, 3),
        ('python train.py --hparams \'{"batch_size": 64, "epochs": 3}\'', 64, 3),
        ("python train.py --batch-size 64 -b 4", 64, None),
        ("git clone -b 2 https://example.com/a && python train.py --epochs 3", None, 3),
        ("dd if=/dev/zero of=/a bs=1024 && python train.py --batch-size 64", 64, None),
        ("gunicorn -b 8000; python train.py --max-batch-tokens 4096", None, None),
        ("python train.py --start-epoch 5 --save_every_epochs 2 --warmup-epochs 3", None, None),
        ("python train.py --batch-size 64.5 --epochs 1e3", None, None),
        (["run_glue.py", "--train_batch_size", "32", "--num_train_epochs", "3.0"], 32, 3),
        ("python run_glue.py --num_train_epochs=3.0 --train_batch_size 32.05", None, 3),
        ('N=64; python train.py --batch-size $N --epochs "${EP}"; EP=3', 64, 3),
        ("N=64; python train.py --batch-size $N --epochs $N", None, None),
        ("BATCH_SIZE=${BATCH_SIZE:-64}; python train.py --batch-size $BATCH_SIZE", None, None),
    ],
)
def test_a_number_is_found_by_its_name(command: str | list[str], batch_size: int | None, epochs: int | None) -> None:
    found = find_arguments(container(command))
    assert (found.batch_size.value, found.epochs.value) == (batch_size, epochs)


@pytest.mark.parametrize(
    "name", ["per_gpu_batch_size", "samples-per-gpu", "training.local_batch_size", "batch_size_per_gpu"]
)
def test_a_batch_size_of_one_device_is_found_by_its_name(name: str) -> None:
    found = find_arguments(container(f"python train.py --{name}=8"))
    assert (found.per_device.value, found.batch_size.value) == (8, None)


def test_arguments_in_a_variable_are_found_and_replaced() -> None:
    spec = {"containers": [{"name": "train", "env": [{"name": "ARGS", "value": "--batch-size 64 --lr 3"}]}]}
    found = find_arguments(spec)
    replace_arguments(spec, found)
    assert found.batch_size.value == 64
    assert spec["containers"][0]["env"] == [{"name": "ARGS", "value": "--batch-size $(WATTLOOP_BATCH_SIZE) --lr 3"}]


@pytest.mark.parametrize("word", ["{name}=$({variable})", "{name} ${variable}", '{name} "${{{variable}}}"'])
def test_a_variable_from_which_an_argument_has_a_setting_has_it_whatever_its_name(word: str) -> None:
    spec = container(
        "train "
        + word.format(name="--per-device-batch-size", variable="BATCH_SIZE")
        + " "
        + word.format(name="--epochs", variable="EP")
    )
    variables = [{"name": "BATCH_SIZE", "value": "8"}, {"name": "EP", "value": "5"}]
    spec["containers"][0]["env"] = variables
    found = find_arguments(spec)
    assert (found.per_device.value, found.batch_size.value, found.epochs.value) == (8, None, 5)
    replace_arguments(spec, found)
    assert [each["value"] for each in variables] == ["$(WATTLOOP_PER_DEVICE_BATCH_SIZE)", "$(WATTLOOP_MAX_EPOCHS)"]


@pytest.mark.parametrize(
    ("command", "variable", "reason"),
    [
        ("train --batch-size=1e3", {}, "--batch-size 1e3 is not written as a whole number above 0"),
        (["train", "--batch-size", "auto"], {}, "--batch-size auto is not written as a whole number above 0"),
        ("train", {"name": "BATCH_SIZE", "value": "1e3"}, "BATCH_SIZE 1e3 is not written as a whole number above 0"),
        (
            "B=${B:-64}; train --batch-size ${B}",
            {},
            "--batch-size has it from the shell variable B (64 where that is not set)",
        ),
        (
            "BATCH_SIZE=${BATCH_SIZE:-64} train",
            {},
            "BATCH_SIZE has it from the shell variable BATCH_SIZE (64 where that is not set)",
        ),
        ("train --batch-size=$(B)", {}, "--batch-size has it from $(B), which env does not have"),
        ("train --batch-size $(cat /b)", {}, "--batch-size $(cat /b) is not written as a whole number above 0"),
        ("train --batch-size 64,128", {}, "--batch-size 64,128 is not written as a whole number above 0"),
        ("train '{\"batch_size\": auto}'", {}, "batch_size auto is not written as a whole number above 0"),
        (
            "train --batch-size=$(B)",
            {"name": "B", "value": "1e3"},
            "--batch-size has it from the variable B, which is '1e3'",
        ),
        (
            "train",
            {"name": "BATCH_SIZE", "valueFrom": {"configMapKeyRef": {"name": "h", "key": "bs"}}},
            "the variable BATCH_SIZE is from key bs of the ConfigMap h",
        ),
        (
            "train --batch-size=$(BATCH_SIZE)",
            {"name": "BATCH_SIZE", "valueFrom": {"secretKeyRef": {"name": "h", "key": "bs"}}},
            "--batch-size has it from the variable BATCH_SIZE, which is from key bs of the Secret h",
        ),
    ],
)
def test_why_a_known_name_has_no_number_is_said(
    command: str | list[str], variable: dict[str, Any], reason: str
) -> None:
    spec = container(command)
    spec["containers"][0]["env"] = [variable]
    found = find_arguments(spec)
    assert found.batch_size.value is None
    assert [each.reason for each in found.batch_size.unread] == [reason]


def test_only_what_was_found_is_replaced() -> None:
    spec = container("git clone -b 2 a && dd bs=7 if=a && python train.py -b 256 -j 8 --eval-batch-size 9")
    before = copy.deepcopy(spec)
    found = find_arguments(spec)
    assert spec == before
    replace_arguments(spec, found)
    (made,) = spec["containers"]
    assert made["command"][2] == before["containers"][0]["command"][2].replace("-b 256", "-b $(WATTLOOP_BATCH_SIZE)")


def test_a_long_command_is_read_in_time_that_grows_with_its_length() -> None:
    found = find_arguments(
        container("train " + "-b 2 " * 20_000 + "a." * 20_000 + "--a" * 20_000 + " --b $a=${" * 9_000)
    )
    assert found.batch_size.value == 2


@pytest.mark.parametrize(
    ("command", "batch_size", "epochs"),
    [
        ("python train.py --eval-batch-size 9 --start_epoch=3 --lr 5", ["--eval-batch-size 9"], ["--start_epoch 3"]),
        # Steps, whose number of epochs is another one with each batch size.
        ("python train.py --train-iters 1000 --log-steps 5 --warmup_steps 9", [], ["--train-iters 1000"]),
        ("python train.py trainer.max_steps=500 -e 5", [], ["trainer.max_steps 500", "-e 5"]),
        (["train.py", "-e5"], [], ["-e 5"]),
    ],
)
def test_what_looks_like_a_setting_and_was_not_taken_is_kept_for_the_message(
    command: str | list[str], batch_size: list[str], epochs: list[str]
) -> None:
    found = find_arguments(container(command))
    assert (found.batch_size.related, found.epochs.related) == (batch_size, epochs)
