"""The name of an experiment with a pipeline, as the published artifact of Perseus has it for folders of dumps.

The parts are joined by ``+``: ``merak+gpt3-xl+custom:0,8,14,21,27+dp1+pp4+tp1+mbs8+nmb128+PointSolution``.
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from wattloop.errors import UsageError
from wattloop.pipeline.plan_source import PlannedRank
from wattloop.printable import printable

# A time stamp, which the server of the artifact writes first, may precede the name.
NAME = re.compile(
    r"(?:\d{4}(?:-\d\d){5}\+)?(?P<framework>[^+]+)\+(?P<model>[^+]+)\+(?P<partition>[^+]+)"
    r"\+dp(?P<dp>[1-9]\d{0,5})\+pp(?P<pp>[1-9]\d{0,5})\+tp(?P<tp>[1-9]\d{0,5})"
    r"\+mbs(?P<mbs>[1-9]\d{0,5})\+nmb(?P<nmb>[1-9]\d{0,5})\+(?P<scheduler>[^+]+)"
)
# Layers by their numbers, as Merak and the artifact write them.
CUSTOM_PARTITION = "custom:"
EXPECTED_NAME = "framework+model+partition+dp1+pp4+tp1+mbs4+nmb128+scheduler"


@dataclass(frozen=True)
class PipelineWorkload:
    """What a pipeline trains, and on how many ranks.

    Attributes:
        framework: The training framework.
        model: Name of the model.
        partition: How the model's layers are divided into stages.
        data_parallel, pipeline_parallel, tensor_parallel: Number of ranks of each kind.
        microbatch_size: Samples in a microbatch.
        microbatches: Microbatches of a pipeline in an iteration.
    """

    framework: str
    model: str
    partition: str
    data_parallel: int
    pipeline_parallel: int
    tensor_parallel: int
    microbatch_size: int
    microbatches: int

    @property
    def ranks(self) -> int:
        """Number of ranks of all pipelines."""
        return self.data_parallel * self.pipeline_parallel * self.tensor_parallel

    @property
    def parallelism(self) -> str:
        """The degrees, as they are in the name."""
        return f"dp{self.data_parallel}+pp{self.pipeline_parallel}+tp{self.tensor_parallel}"

    @property
    def label(self) -> str:
        """All but the scheduler.

        Example:
            >>> PipelineWorkload("torch", "gpt", "uniform", 1, 4, 1, 8, 16).label
            'torch+gpt+uniform+dp1+pp4+tp1+mbs8+nmb16'
        """
        batches = f"mbs{self.microbatch_size}+nmb{self.microbatches}"
        return "+".join((self.framework, self.model, self.partition, self.parallelism, batches))


@dataclass(frozen=True)
class ExperimentName:
    """A workload, and what set the clocks or limits of its GPUs."""

    workload: PipelineWorkload
    scheduler: str

    @property
    def text(self) -> str:
        """The name of its folder."""
        return f"{self.workload.label}+{self.scheduler}"


def parse_experiment_name(name: str) -> ExperimentName | None:
    """The parts of a folder's name; None if it is another name.

    Example:
        >>> found = parse_experiment_name("merak+t5-3b+custom:0,16,33+dp1+pp2+tp1+mbs4+nmb32+PointSolution")
        >>> found.workload.partition, found.workload.ranks, found.scheduler
        ('custom:0,16,33', 2, 'PointSolution')
        >>> parse_experiment_name("prof_sample") is None
        True
    """
    match = NAME.fullmatch(name)
    if match is None:
        return None
    degrees = (int(match[part]) for part in ("dp", "pp", "tp", "mbs", "nmb"))
    workload = PipelineWorkload(match["framework"], match["model"], match["partition"], *degrees)
    return ExperimentName(workload, match["scheduler"])


def experiment_folder(dumps: Path, rank: PlannedRank, names: tuple[str, str, int], scheduler: str) -> Path:
    """The folder of the dumps, with the name of the experiment if the script states its parts.

    Args:
        dumps: Folder of all dumps; or of this workload, if its name is that of an experiment without the scheduler.
        rank: The rank, with the degrees and the model.
        names: What else the script states: framework, partition, and microbatch size; empty or 0: not stated.
        scheduler: What sets the clocks.

    Raises:
        UsageError: The script states only a part, a partition that does not divide the layers into the stages, or a
            text that cannot be part of the name.
    """
    framework, partition, microbatch_size = names
    if not partition and not microbatch_size:
        named = dumps.with_name(f"{dumps.name}+{scheduler}") if dumps.name else dumps
        return dumps if parse_experiment_name(named.name) is None else named
    stated = {"model": rank.model, "partition": partition, "microbatch_size": microbatch_size}
    missing = [name for name, value in stated.items() if not value]
    if missing:
        raise UsageError(f"{', '.join(missing)}: missing, to name the folder of the dumps {EXPECTED_NAME}")
    place = rank.place
    _check_partition(partition, place.pipeline_parallel)
    degrees = place.data_parallel, place.pipeline_parallel, place.tensor_parallel
    workload = PipelineWorkload(framework, rank.model, partition, *degrees, microbatch_size, rank.microbatches)
    name = ExperimentName(workload, scheduler)
    if "/" in name.text or parse_experiment_name(name.text) != name:
        raise UsageError(
            f"framework, model, partition, microbatch_size: found {name.text}, expected texts without + and / and a "
            f"whole number above 0, for a folder {EXPECTED_NAME}"
        )
    return dumps / name.text


def _check_partition(partition: str, stages: int) -> None:
    """Check that a partition by numbers of layers gives each stage at least one layer and leaves none out."""
    if not partition.startswith(CUSTOM_PARTITION):
        return
    texts = partition.removeprefix(CUSTOM_PARTITION).split(",")
    bounds = [int(text) for text in texts if re.fullmatch(r"[0-9]{1,6}", text)]
    rising = all(one < other for one, other in pairwise(bounds))
    if len(bounds) != len(texts) or len(bounds) != stages + 1 or bounds[0] != 0 or not rising:
        example = ",".join(str(8 * stage) for stage in range(stages + 1))
        raise UsageError(
            f"partition: found {printable(partition)}, expected the first layer of each of the {stages} stages and the "
            f"number of layers, {stages + 1} rising whole numbers from 0, such as {CUSTOM_PARTITION}{example}"
        )
