"""Hugging Face's own Trainer in workloads whose pods belong to objects between, on their real controllers."""

from dataclasses import replace
from pathlib import Path

import pytest

from support.control_plane.chart import REPOSITORY
from support.control_plane.driven_job import DrivenJob
from support.control_plane.example_job import ExampleJob, example_job
from support.control_plane.fixtures import StartControllers
from support.control_plane.pod_process import run_scripts
from support.control_plane.training import TokenOfPod
from support.local_runs.huggingface_script import SCRIPT, evaluations

PYTHON = REPOSITORY / ".venv-integrations" / "bin" / "python"
# Its callback waits 5 s between two statuses, but not for the last one.
EPOCHS = 20


# tests/integrations/test_unchanged_scripts.py runs the script in processes, test_workload_contract.py these kinds.
@pytest.mark.exhaustive
@pytest.mark.skipif(not PYTHON.exists(), reason="no transformers: make integrations installs it")
def test_an_unchanged_script_in_a_job_set_or_a_train_job_reaches_with_a_metric_that_it_logged(
    start_controllers: StartControllers, driven: DrivenJob, token_of_pod: TokenOfPod, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    arguments = [str(script), "--batch-size=$(WATTLOOP_BATCH_SIZE)", f"--epochs={EPOCHS}"]
    spec = {
        "objective": {"target": {"metric": "eval_accuracy", "threshold": "0.9"}, "maxEpochs": 40},
        "reporting": {"source": "KubeflowTrainer"},
    }
    job_set, train_job = (one_pod(example_job(name, driven, **spec)) for name in ("job-set", "train-job"))
    group = ("replicatedJobs", 0, "template", "spec")
    job_set.set(group, completions=1, parallelism=1)
    job_set.set((*group, "template", "spec", "containers", 0), command=["python"], args=arguments)
    train_job.set(("trainer",), command=["python"], args=arguments, numNodes=1)
    examples = {"job-set": job_set, "train-job": train_job}
    pods = []
    for name, example in examples.items():
        start_controllers(name)
        example.begin()
        pods += example.run()
    outputs = run_scripts(PYTHON, "transformers.trainer", pods, tmp_path, token_of_pod)
    for example, pod, output in zip(examples.values(), pods, outputs, strict=True):
        example.succeed([pod])
        example.await_end()
        assert example.driven.results == ["Reached"], output
        progress = example.driven.recurrence["status"]["progress"]
        assert (float(progress["epoch"]), float(progress["metric"])) in evaluations(output)


def one_pod(example: ExampleJob) -> ExampleJob:
    return replace(example, example=replace(example.example, pods=1))
