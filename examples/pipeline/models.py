"""Trains a published model by its name in pipeline stages, one for each process.

    torchrun --standalone --nproc-per-node 4 models.py gpt3-xl 8 128 --partition-method custom:0,8,14,21,27

Weights are random, and the text or the images are made at run time. Each option that is not given is taken from the
job's `spec.parameters`, if it has one of that name: `partition_method` is `--partition-method`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from experiment import (
    ONE_FORWARD_ONE_BACKWARD,
    SCHEDULES,
    Degrees,
    Experiment,
    default_method,
    experiment_of,
    shards_of,
)
from model_catalogue import (
    IMAGE_SIZES,
    PUBLISHED_WIDTHS,
    TRANSFORMER_SIZES,
    TRANSFORMERS,
    model_named,
    parameter_count,
    published_count,
)
from partitions import METHODS

from wattloop.errors import UsageError, WattloopError
from wattloop.wire.environment import RunEnvironment
from wattloop.wire.launcher import process_rank

MICROBATCH_SIZE, MAX_STEPS, STEPS_PER_EPOCH, PROFILE_STEPS, PROFILE_CLOCKS = 4, 100, 10, 20, 12
LEARNING_RATE = 1e-4
DTYPES = ("float32", "bfloat16")
# Options whose values the job's parameters may not set, because they are files or say what the program does.
OF_THE_COMMAND = frozenset({"list", "dry_run", "profile", "plan", "baseline", "baseline_limits", "dumps", "data"})
BASELINES = ("zeus-global", "zeus-per-stage")
# Of a training that ends when all its plans or power limits are measured.
UNTIL_MEASURED = 1_000_000


def parser() -> argparse.ArgumentParser:
    """The options; those of Merak's trainer have its names."""
    found = argparse.ArgumentParser(
        prog="models.py",
        description="Trains a published model by its name in pipeline stages. Start it with torchrun.",
        epilog="An option that is not given is taken from WATTLOOP_PARAM_NAME, which the job's spec.parameters sets.",
    )
    found.add_argument("model", nargs="?", help="bert-base-uncased, gpt3-xl, wide-resnet50_2, …; --list has all")
    found.add_argument(
        "microbatch_size", nargs="?", type=int, default=MICROBATCH_SIZE, help="samples of a microbatch (%(default)s)"
    )
    found.add_argument(
        "num_microbatches",
        nargs="?",
        type=int,
        help="microbatches of a step of each pipeline; default: the published global batch size, or that of the job",
    )
    found.add_argument("--list", action="store_true", help="show the models, their parameters and batch sizes, and end")
    found.add_argument("--dry-run", action="store_true", help="show the stages, and end")

    division = found.add_argument_group("how the model is divided")
    division.add_argument("--pp", type=int, help="number of stages; default: all ranks, divided by --dp")
    division.add_argument("--dp", type=int, default=1, help="number of copies of the pipeline (%(default)s)")
    division.add_argument("--tp", type=int, default=1, help="only 1: this trainer divides no matrices")
    division.add_argument(
        "--partition-method",
        metavar="METHOD",
        help=f"{', '.join(METHODS)}; default: uniform_transformer, or flops for a Wide-ResNet",
    )
    division.add_argument(
        "--shard-count", type=int, help="join the layers to this many shards at most; custom: counts shards"
    )
    division.add_argument(
        "--train-schedule",
        default=ONE_FORWARD_ONE_BACKWARD,
        metavar="NAME",
        help=f"{' or '.join(SCHEDULES)} (%(default)s)",
    )
    division.add_argument(
        "--activation-checkpointing",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="with 1f1b: keep the inputs of layers alone, and compute the rest again in the backward pass",
    )

    training = found.add_argument_group("training")
    training.add_argument(
        "--max-steps",
        type=int,
        help=f"steps; default: {MAX_STEPS}, or until all plans of a folder or all limits of a baseline are measured",
    )
    training.add_argument(
        "--steps-per-epoch", type=int, default=STEPS_PER_EPOCH, help="steps between two reports (%(default)s)"
    )
    training.add_argument("--learning-rate", type=float, default=LEARNING_RATE, help="of Adam (%(default)s)")
    training.add_argument("--dtype", choices=DTYPES, default=DTYPES[0], help="of weights and activations (%(default)s)")
    training.add_argument("--seed", type=int, help="of weights and data; default: that of the run")
    training.add_argument(
        "--data", metavar="FOLDER", help="train on FOLDER/*.txt, a token for each byte; default: made"
    )

    clocks = found.add_argument_group("clocks")
    clocks.add_argument(
        "--profile",
        metavar="FOLDER",
        help="measure the instructions at each clock into a file there, and end",
    )
    clocks.add_argument(
        "--num-prof-steps",
        type=int,
        default=PROFILE_STEPS,
        help="steps measured at each clock, under each plan, or at each power limit (%(default)s)",
    )
    clocks.add_argument(
        "--profile-clocks",
        default=PROFILE_CLOCKS,
        type=clocks_of,
        metavar="MHZ,…",
        help="the clocks to profile, or the number of evenly spaced ones (%(default)s)",
    )
    clocks.add_argument("--plan", metavar="PATH", help="run this plan of wattloop plan, or the plans of this folder")
    clocks.add_argument(
        "--baseline",
        choices=BASELINES,
        help="measure one power limit for all ranks, or one a stage, from the highest down, and end",
    )
    clocks.add_argument(
        "--baseline-limits",
        type=clocks_of,
        metavar="W,…",
        help="the power limits of --baseline, or the step between them (default: 25)",
    )
    clocks.add_argument(
        "--dumps",
        metavar="FOLDER",
        help="write time and energy of the steps into FOLDER/GPU/parallelism/experiment, as wattloop pipeline evaluate "
        "reads them",
    )

    sizes = found.add_argument_group("other sizes than the published ones, such as for a machine without GPUs")
    for name in (*TRANSFORMER_SIZES, *IMAGE_SIZES):
        sizes.add_argument("--" + name.replace("_", "-"), type=int)
    return found


def clocks_of(text: str) -> int | tuple[int, ...]:
    """The clocks in MHz, or limits in watts, between commas; or their number or step."""
    numbers = tuple(int(word) for word in text.split(",") if word)
    return numbers if "," in text else numbers[0]


def options_of(arguments: Sequence[str], parameters: dict[str, str]) -> argparse.Namespace:
    """The options of a command line and, where it has none, of the job's parameters.

    Raises:
        UsageError: A parameter is of no option, or an option is not valid.
    """
    options = parser()
    known = {action.dest for action in options._actions if action.nargs != 0} - OF_THE_COMMAND
    for name in parameters:
        if name not in known:
            raise UsageError(f"spec.parameters: found {name}, expected one of {', '.join(sorted(known))}")
    options.set_defaults(**parameters)
    found = options.parse_args(arguments)
    if found.max_steps is None:
        found.max_steps = UNTIL_MEASURED if is_series(found) else MAX_STEPS
    for name in ("max_steps", "steps_per_epoch", "num_prof_steps", "dp"):
        if getattr(found, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')}: found {getattr(found, name)}, expected 1 or more")
    if found.tp != 1:
        raise UsageError(
            f"--tp: found {found.tp}, expected 1: this trainer divides no matrices among GPUs. A trainer of yours with "
            "tensor-parallel ranks runs under a plan too: attach(schedule, tensor_parallel=…, tensor_rank=…)"
        )
    if found.dtype not in DTYPES:
        raise UsageError(f"--dtype: found {found.dtype!r}, expected one of {', '.join(DTYPES)}")
    return found


def is_series(options: argparse.Namespace) -> bool:
    """Whether a training runs the plans of a folder, or the power limits of a baseline."""
    return options.baseline is not None or (options.plan is not None and Path(options.plan).is_dir())


def experiment(options: argparse.Namespace, ranks: int) -> Experiment:
    """What these options train on so many ranks.

    Raises:
        UsageError: An option is not valid.
    """
    if options.model is None:
        raise UsageError("model: found none, expected a name of --list")
    stages = options.pp
    if stages is None:
        stages = max(ranks // options.dp, 1)
    if stages < 1 or (not options.dry_run and stages * options.dp != ranks):
        raise UsageError(
            f"--pp {stages} --dp {options.dp}: found {ranks} ranks, expected pp × dp = {stages * options.dp}; "
            f"torchrun --nproc-per-node {max(stages * options.dp, 1)} on one node, or that many over all nodes"
        )
    found = experiment_of(
        options.model,
        {name: getattr(options, name) for name in (*TRANSFORMER_SIZES, *IMAGE_SIZES)},
        method=options.partition_method or default_method(model_named(options.model)),
        shard_count=options.shard_count,
        degrees=Degrees(options.dp, stages),
        microbatch_size=options.microbatch_size,
        schedule=options.train_schedule,
    )
    if options.profile is not None and options.num_microbatches not in {None, found.profile_microbatches}:
        raise UsageError(
            f"--profile: found {options.num_microbatches} microbatches, expected {found.profile_microbatches}; the "
            "profile holds for any number"
        )
    return found


def listing() -> list[str]:
    """A line for each published model."""
    models = [*TRANSFORMERS, *(model_named(f"wide-resnet{depth}_{width}") for depth, width in PUBLISHED_WIDTHS)]
    lines = [f"{'model':20}{'layers':>7}{'million parameters':>20}{'as published':>14}{'global batch size':>19}"]
    for each in models:
        millions, published = parameter_count(each) / 1e6, published_count(each) / 1e6
        lines.append(
            f"{each.name:20}{len(shards_of(each)) - 1:7}{millions:20.2f}{published:14.2f}{each.global_batch_size:19}"
        )
    return [*lines, "wide-resnet50_W and wide-resnet101_W have any width factor W."]


def main(arguments: Sequence[str]) -> None:
    """Train, or show what would be trained.

    Raises:
        WattloopError: An option or a variable is not valid.
    """
    environment = RunEnvironment.read(os.environ)
    options = options_of(arguments, {name.lower(): value for name, value in environment.parameters.items()})
    if options.list:
        print("\n".join(listing()))
        return
    launched = process_rank(os.environ)
    trained = experiment(options, launched.ranks)
    if options.dry_run:
        print("\n".join([trained.profile_name, *trained.description()]))
        return
    if "RANK" not in os.environ:
        raise UsageError("found no variable RANK of a launcher; start it with torchrun --nproc-per-node … models.py …")
    # PyTorch takes seconds to import.
    import pipeline_training  # noqa: PLC0415

    pipeline_training.train(trained, options)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except WattloopError as error:
        sys.exit(f"models.py: {error}")
