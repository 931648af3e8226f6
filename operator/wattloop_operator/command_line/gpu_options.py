"""The options that choose the GPUs of a local run, for `wattloop run` and `wattloop sweep`, and numbers in options."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from wattloop.errors import UsageError
from wattloop_operator.local.local_gpus import (
    ANNOTATION,
    MAX_GPUS,
    MODELS,
    MODELS_WITHOUT_COUNTER,
    SimulatedLoad,
    Simulation,
    has_driver,
)

if TYPE_CHECKING:
    from wattloop_operator.api.recurring_training_job import RecurringTrainingJob

# Of an integer; more do not fit into the store.
MAX_DIGITS = 18


def add_gpu_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the GPUs of a local run."""
    parser.add_argument(
        "--simulated-gpus",
        type=_gpu_count,
        metavar="N",
        help="simulate N GPUs (default: use this machine's own; without an NVIDIA driver, `wattloop run` measures its "
        "processors by RAPL, or the time alone, and `wattloop sweep` simulates one)",
    )
    parser.add_argument(
        "--gpu-model",
        choices=MODELS,
        default="A100",
        metavar="NAME",
        help=f"model of simulated GPUs: {', '.join(MODELS)} (default: A100); {' and '.join(MODELS_WITHOUT_COUNTER)} "
        "have no energy counter, and run in real time",
    )
    parser.add_argument(
        "--simulated-load",
        metavar="LOAD",
        help="load that a training puts on the simulated GPUs without knowing them: cpu (busy as long as the training "
        "uses a processor) or busy=F (busy for this share of its time); default: the manifest's annotation "
        "wattloop.dev/simulated-load, else none, and the GPUs are idle unless the training occupies them",
    )


def simulation_of(
    arguments: argparse.Namespace, job: RecurringTrainingJob, *, else_processors: bool = False
) -> Simulation | None:
    """The GPUs to simulate; None for what this machine has.

    Args:
        arguments: The options.
        job: The job, which may declare a load.
        else_processors: Whether the processors are measured on a machine without a GPU, unless an option is for
            simulated ones. Otherwise one GPU is simulated.

    Raises:
        UsageError: An option needs simulated GPUs, and there are none, or a load is not valid.
    """
    count, load = arguments.simulated_gpus, _declared_load(arguments, job)
    if count is None:
        if has_driver():
            if arguments.simulated_load is not None:
                raise UsageError("--simulated-load needs simulated GPUs; add --simulated-gpus N")
            return None
        if else_processors and load is None:
            return None
        sys.stderr.write(f"no NVIDIA driver on this machine: simulating one {arguments.gpu_model}\n")
        count = 1
    has_counter = arguments.gpu_model not in MODELS_WITHOUT_COUNTER
    if not has_counter and load is not None:
        others = ", ".join(model for model in MODELS if model not in MODELS_WITHOUT_COUNTER)
        raise UsageError(
            f"--gpu-model {arguments.gpu_model} has no energy counter: its energy is the integral of its power in real "
            "time, and a simulated load has a time of its own; leave the load out, or choose a model with a counter: "
            f"{others}"
        )
    if not has_counter:
        sys.stderr.write(
            f"{arguments.gpu_model} has no energy counter, and its energy is the integral of its power: simulated GPUs "
            "run in real time\n"
        )
    return Simulation(count, arguments.gpu_model, arguments.seed, load, real_time=not has_counter)


def _declared_load(arguments: argparse.Namespace, job: RecurringTrainingJob) -> SimulatedLoad | None:
    given, place = arguments.simulated_load, "--simulated-load"
    if given is None:
        given, place = job.metadata.annotations.get(ANNOTATION), f"{arguments.file}: annotation {ANNOTATION}"
    if given is None:
        return None
    try:
        return SimulatedLoad.of_text(given)
    except ValueError as error:
        raise UsageError(f"{place}: {error}") from None


def positive_integer(text: str) -> int:
    """An integer of at least 1."""
    return _integer(text, 1)


def _gpu_count(text: str) -> int:
    value = positive_integer(text)
    if value > MAX_GPUS:
        raise argparse.ArgumentTypeError(f"found {text}, expected at most {MAX_GPUS}")
    return value


def non_negative_integer(text: str) -> int:
    """An integer of at least 0."""
    return _integer(text, 0)


def _integer(text: str, minimum: int) -> int:
    is_integer = text.isascii() and text.isdecimal()
    if not is_integer or len(text) > MAX_DIGITS or int(text) < minimum:
        digits = f" and at most {MAX_DIGITS} digits" if is_integer and len(text) > MAX_DIGITS else ""
        raise argparse.ArgumentTypeError(f"found {text[:40]!r}, expected an integer of at least {minimum}{digits}")
    return int(text)
