"""The options that choose the GPUs of a local run, for `wattloop run` and `wattloop sweep`, and numbers in options."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from wattloop.errors import UsageError
from wattloop_operator.local.local_gpus import (
    ANNOTATION,
    MAX_GPUS,
    MAX_TIME_SCALE,
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
        "have no energy counter and need --time-scale",
    )
    parser.add_argument(
        "--simulated-load",
        metavar="LOAD",
        help="load that a training puts on the simulated GPUs without knowing them: cpu (busy as long as the training "
        "uses a processor) or busy=F (busy for this share of its time); default: the manifest's annotation "
        "wattloop.dev/simulated-load, else none, and the GPUs are idle unless the training occupies them",
    )
    parser.add_argument(
        "--time-scale",
        type=_positive_number,
        metavar="F",
        help="simulated seconds per real second (default: simulated time advances only with the training's work, so "
        "that the same seed gives the same results on every machine; for a job with power.frequencyPlan: 1)",
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
    if load is not None and arguments.time_scale is not None:
        raise UsageError(
            "--time-scale and a simulated load exclude each other: with a load, a second of the training is "
            "a second of the GPUs at full power; leave one out"
        )
    if count is None:
        if has_driver():
            if arguments.time_scale is not None or arguments.simulated_load is not None:
                option = "--time-scale" if arguments.simulated_load is None else "--simulated-load"
                raise UsageError(f"{option} needs simulated GPUs; add --simulated-gpus N")
            return None
        if else_processors and load is None and arguments.time_scale is None:
            return None
        sys.stderr.write(f"no NVIDIA driver on this machine: simulating one {arguments.gpu_model}\n")
        count = 1
    if arguments.gpu_model in MODELS_WITHOUT_COUNTER and arguments.time_scale is None:
        others = ", ".join(model for model in MODELS if model not in MODELS_WITHOUT_COUNTER)
        raise UsageError(
            f"--gpu-model {arguments.gpu_model} has no energy counter: its energy is the integral of its power, which "
            "needs time that runs; add --time-scale 1, and leave a simulated load out, or choose a model with a "
            f"counter: {others}"
        )
    return Simulation(count, arguments.gpu_model, arguments.time_scale, arguments.seed, load)


def _declared_load(arguments: argparse.Namespace, job: RecurringTrainingJob) -> SimulatedLoad | None:
    """The load of the option, or else of the manifest."""
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


def _positive_number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= MAX_TIME_SCALE:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number above 0, at most {MAX_TIME_SCALE:g}")
    return value
