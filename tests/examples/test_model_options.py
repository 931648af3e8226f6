"""The options of examples/pipeline/models.py, and what they name: profile, folder, key."""

import itertools
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import models
import pytest
from experiment import Degrees, with_measured_costs

from wattloop.errors import UsageError
from wattloop.pipeline.directives import DirectiveState
from wattloop.pipeline.pipeline_place import pipeline_place
from wattloop.pipeline.plan_source import PlannedRank
from wattloop.wire.environment import RunEnvironment
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.local.job_file import read_job
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.workloads.injection import ClusterAddresses
from wattloop_operator.workloads.workload_manifest import manifest
from wattloop_research.training.experiment_name import experiment_folder

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline"


def variables_of_job() -> dict[str, str]:
    """The variables that the operator gives to the containers of models.yaml."""
    read = read_job(EXAMPLE / "models.yaml")
    metadata = read.metadata.model_copy(update={"namespace": "team", "uid": "job-uid", "generation": 1})
    job = read.model_copy(update={"metadata": metadata})
    recurrence = decide(Snapshot(job), Attempt(0, 0, "1772323200", datetime(2026, 3, 1, tzinfo=UTC)))
    container = manifest(job, recurrence, ClusterAddresses())["spec"]["template"]["spec"]["containers"][0]
    return {each["name"]: each.get("value", "") for each in container["env"]}


def test_model_partition_and_degrees_of_the_job_s_spec_name_profile_folder_and_key() -> None:
    variables = variables_of_job()
    parameters = {name.lower(): value for name, value in RunEnvironment.read(variables).parameters.items()}
    found = models.experiment(models.options_of(["--hidden-size", "48"], parameters), 4)
    assert found.partition == (0, 5, 8, 11, 15)
    assert found.degrees == Degrees(data=1, pipeline=4)
    name = "torch+gpt3-small-hiddensize48+custom:0,5,8,11,15+dp1+pp4+tp1+mbs2"
    assert found.profile_name == name
    assert found.name(16) == f"{name}+nmb16+1f1b"
    assert found.key == "gpt3-small-hiddensize48+custom:0,5,8,11,15+mbs2"


def test_dumps_are_where_evaluate_finds_them(tmp_path: Path) -> None:
    given = ["gpt3-xl", "8", "128", "--partition-method", "custom:0,8,14,21,27"]
    single = models.options_of([*given, "--plan", "plans/freqs_pipeline_00000.py"], {})
    folder = models.options_of([*given, "--plan", str(tmp_path)], {})
    baseline = models.options_of([*given, "--baseline", "zeus-global", "--baseline-limits", "400,250"], {})
    assert [models.is_series(each) for each in (single, folder, baseline)] == [False, True, True]
    # Plans of a folder, and limits, end the training by themselves.
    assert (single.max_steps, folder.max_steps, baseline.baseline_limits) == (100, 1_000_000, (400, 250))
    label = "gpt3-xl+custom:0,8,14,21,27+dp1+pp4+tp1+mbs8+nmb128"
    found = models.experiment(folder, 4)
    dumps = tmp_path / found.folder(128, "A100", is_series=True)
    assert dumps == tmp_path / "A100" / "dp1+pp4+tp1" / f"torch+{label}"
    assert found.folder(128, "A100", is_series=False).name == f"torch+{label}+1f1b"
    place, environment = pipeline_place(stage=0, stages=4), RunEnvironment.read({})
    rank = PlannedRank(place, 128, "1F1B", "gpt3-xl", dumps, environment, DirectiveState())
    for scheduler in ("PointSolution", "ZeusGlobalPowerLimit"):
        named = experiment_folder(dumps, rank, ("torch", "", 0), scheduler)
        assert named == dumps.parent / f"torch+{label}+{scheduler}"
        assert experiment_folder(tmp_path, rank, ("torch", "", 0), scheduler) == tmp_path
    early = models.experiment(models.options_of([*given, "--train-schedule", "early_recompute_1f1b"], {}), 4)
    assert early.folder(128, "A100", is_series=True).name == f"torch-early_recompute_1f1b+{label}"


def test_an_option_of_the_command_line_precedes_the_job_s_parameter() -> None:
    options = models.options_of(["gpt3-medium", "8"], {"model": "gpt3-xl", "microbatch_size": "4", "pp": "2"})
    assert (options.model, options.microbatch_size, options.pp) == ("gpt3-medium", 8, 2)


def test_another_partition_under_the_same_name_has_another_key() -> None:
    first = models.experiment(models.options_of(["gpt3-small", "--partition-method", "measured"], {}), 2)
    other = with_measured_costs(first, [1.0, *[0.0] * 13, 1.0], None)
    assert first.name(8) == other.name(8)
    assert first.key != other.key


def test_a_key_of_many_stages_has_the_length_that_a_pipeline_takes() -> None:
    arguments = ["gpt3-175b", "--partition-method", "uniform"]
    keys = [models.experiment(models.options_of([*arguments, *more], {}), 64).key for more in ([], ["--dp", "2"])]
    assert [len(key) for key in keys] == [128, len(keys[1])]
    assert len(set(keys)) == 2


@pytest.mark.parametrize(
    ("arguments", "parameters", "message"),
    [
        (["gpt3-xl", "--tp", "2"], {}, "--tp: found 2, expected 1: this trainer divides no matrices among GPUs"),
        (["gpt3-xl", "--max-steps", "0"], {}, "--max-steps: found 0, expected 1 or more"),
        (["gpt3-xl"], {"dropout": "0.1"}, "spec.parameters: found dropout, expected one of blocks, "),
        (["gpt3-xl"], {"profile": "p"}, "spec.parameters: found profile, expected one of "),
        (["gpt3-xl"], {"dtype": "float8"}, "--dtype: found 'float8', expected one of float32, bfloat16"),
    ],
)
def test_an_option_that_cannot_be_is_refused(arguments: list[str], parameters: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        models.options_of(arguments, parameters)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "model: found none, expected a name of --list"),
        (
            ["gpt3-xl", "--pp", "3"],
            "--pp 3 --dp 1: found 4 ranks, expected pp × dp = 3; torchrun --nproc-per-node 3 on",
        ),
        (
            ["gpt3-xl", "4", "8", "--profile", "p"],
            "--profile: found 8 microbatches, expected 1; the profile holds for any",
        ),
        (
            ["gpt3-xl", "4", "1", "--profile", "p", "--train-schedule", "early_recompute_1f1b"],
            "--profile: found 1 microbatches, expected 4; the profile holds for any number",
        ),
        (["gpt3-xl", "0"], "microbatch_size: found 0, expected 1 or more"),
        (
            ["gpt3-xl", "--train-schedule", "zb"],
            "--train-schedule: found 'zb', expected one of 1f1b, early_recompute_1f1b",
        ),
    ],
)
def test_an_experiment_that_cannot_be_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        models.experiment(models.options_of(arguments, {}), 4)
    assert str(refused.value).startswith(message)


def test_a_batch_size_that_makes_no_microbatches_is_refused_with_one_that_would() -> None:
    found = models.experiment(models.options_of(["gpt3-xl", "8", "--dp", "2"], {}), 8)
    assert found.microbatches(1024) == 64
    with pytest.raises(UsageError, match="found 1000, expected a multiple of microbatch size × --dp = 16, such as 992"):
        found.microbatches(1000)
    with pytest.raises(UsageError, match="found 0, expected a multiple of microbatch size × --dp = 16, such as 16"):
        found.microbatches(0)
    with pytest.raises(UsageError, match=r"32, which are 2 microbatches, expected 4 or more, .* is a batch size of 64"):
        found.microbatches(32)
    early = models.options_of(["gpt3-xl", "8", "--dp", "2", "--train-schedule", "early_recompute_1f1b"], {})
    assert models.experiment(early, 8).microbatches(32) == 2


@pytest.mark.parametrize(("text", "clocks"), [("12", 12), ("1410,1110", (1410, 1110)), ("1410,", (1410,))])
def test_clocks_to_profile_are_a_number_of_them_or_a_list(text: str, clocks: object) -> None:
    assert models.options_of(["gpt3-xl", "--profile-clocks", text], {}).profile_clocks == clocks


@pytest.mark.parametrize("data", [1, 2, 3])
def test_each_rank_is_in_one_pipeline_and_has_one_copy_of_a_stage(data: int) -> None:
    degrees = Degrees(data=data, pipeline=4)
    ranks = range(degrees.ranks)
    for groups in (degrees.pipelines, degrees.copies):
        assert sorted(itertools.chain.from_iterable(groups)) == list(ranks)
    for rank in ranks:
        copy, stage = degrees.place_of(rank)
        assert degrees.pipelines[copy][stage] == degrees.copies[stage][copy] == rank


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in {"RANK", "WORLD_SIZE"}}
    command = [sys.executable, str(EXAMPLE / "models.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_the_program_lists_its_models_and_shows_stages_without_pytorch() -> None:
    listed = run("--list")
    assert listed.returncode == 0
    assert "gpt3-xl                  27             1313.63       1313.63               1024" in listed.stdout
    shown = run("gpt3-xl", "8", "128", "--pp", "4", "--partition-method", "custom:0,8,14,21,27", "--dry-run")
    assert shown.returncode == 0
    assert shown.stdout.splitlines()[0] == "torch+gpt3-xl+custom:0,8,14,21,27+dp1+pp4+tp1+mbs8"
    assert "stage 3: layers 21 to 26, 5 block, 1 head, 251.80 million parameters" in shown.stdout


def test_an_error_is_one_line() -> None:
    refused = run("gpt3-xl", "--pp", "2", "--partition-method", "custom:0,26", "--dry-run")
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert refused.stderr.startswith(
        "models.py: custom:0,26: found 1 stages, but --pp is 2, expected 3 rising whole numbers"
    )
    assert "start it with torchrun" in run("gpt3-small").stderr
