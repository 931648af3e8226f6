"""The jobs of the benchmarks of policies: a third of the 24 published ones, and variants of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from wattloop_research.simulation.simulation_options import JobOptions, options_of_command
from wattloop_research.simulation.tasks import TraceFiles

TRACES = Path(__file__).parents[1] / "tests" / "data" / "zeus-traces"
GPUS = ("a40", "v100")
WORKLOADS = {
    "cifar100": ("shufflenetv2", "adadelta", "0.6", "100", "1024"),
    "imagenet": ("resnet50", "adadelta", "0.65", "100", "256"),
    "movielens-1m": ("ncf", "adam", "0.41", "100", "1024"),
    "sentiment140": ("bert_base_uncased", "adamw", "0.84", "10", "128"),
}
OTHER_TARGETS = {
    "cifar100": ("0.5", "0.55"),
    "imagenet": ("0.55", "0.6"),
    "movielens-1m": ("0.4",),
    "sentiment140": ("0.845", "0.85"),
}
OTHER_DEFAULTS = {
    "cifar100": ("64", "128", "256", "512"),
    "imagenet": ("128", "192", "360"),
    "movielens-1m": ("512", "2048", "4096", "16384"),
    "sentiment140": ("16", "32", "64"),
}
# Jobs whose limit of epochs lies between what the arms need: (workload, target, default, limit).
LIMITED_DEFAULT_REACHES = (
    ("cifar100", "0.6", "64", "22"),
    ("cifar100", "0.6", "128", "35"),
    ("cifar100", "0.6", "512", "50"),
    ("cifar100", "0.5", "64", "12"),
    ("cifar100", "0.5", "256", "18"),
    ("cifar100", "0.55", "128", "16"),
    ("cifar100", "0.55", "256", "25"),
    ("imagenet", "0.65", "256", "24"),
    ("imagenet", "0.6", "256", "13"),
    ("imagenet", "0.55", "256", "9"),
    ("movielens-1m", "0.41", "1024", "5"),
    ("movielens-1m", "0.4", "128", "4"),
)
LIMITED_DEFAULT_NEVER_REACHES = (
    ("cifar100", "0.6", "1024", "50"),
    ("cifar100", "0.6", "1024", "22"),
    ("cifar100", "0.6", "512", "35"),
    ("cifar100", "0.5", "1024", "18"),
    ("cifar100", "0.5", "2048", "25"),
    ("cifar100", "0.55", "1024", "25"),
    ("imagenet", "0.65", "64", "40"),
    ("imagenet", "0.65", "128", "25"),
    ("imagenet", "0.6", "64", "16"),
)
FILES = TraceFiles()


def job(dataset: str, gpu: str, seeds: str, **more: str) -> JobOptions:
    """A published job, with some options replaced."""
    network, optimizer, target, epochs, default = WORKLOADS[dataset]
    given = {
        "job": dataset,
        "gpu": gpu,
        "train": str(TRACES / "summary_train.csv"),
        "power": str(TRACES / f"summary_power_{gpu}.csv"),
        "dataset": dataset,
        "network": network,
        "optimizer": optimizer,
        "target_metric": target,
        "max_epochs": epochs,
        "default_batch_size": default,
        "seeds": seeds,
        **more,
    }
    return options_of_command(given)


def all_jobs(seeds: str, **more: str) -> list[JobOptions]:
    """All available published jobs."""
    return [job(dataset, gpu, seeds, **more) for gpu in GPUS for dataset in WORKLOADS]


def each(seeds: str, option: str, values: dict[str, tuple[str, ...]], **more: str) -> list[JobOptions]:
    """All available published jobs with each of their other values of an option."""
    return [
        job(dataset, gpu, seeds, **{option: value}, **more)
        for gpu in GPUS
        for dataset, options in values.items()
        for value in options
    ]


def limited(jobs: Iterable[tuple[str, str, str, str]], seeds: str, **more: str) -> list[JobOptions]:
    """Jobs with a binding limit of epochs, on every GPU model."""
    return [
        job(dataset, gpu, seeds, target_metric=target, default_batch_size=default, max_epochs=limit, **more)
        for gpu in GPUS
        for dataset, target, default, limit in jobs
    ]
