"""The pods of examples/pipeline/two-nodes.yaml as processes of this machine, with the variables that the operator sets.

They are launched by torchrun, as the manifest says, and by the environment alone, with one process per pod. Both are
forked from this process, which has imported PyTorch, and torchrun forks its ranks; in the exhaustive set, each is
another Python, as in a pod.
"""

import logging
import os
import re
import runpy
import sys
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch._dynamo
import torch.distributed.pipelining
import torch.distributed.run

from support.forked_process import exit_codes, forked
from support.free_ports import free_port
from support.test_sets.parameters import exhaustive_after
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.local.job_file import read_job
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.workloads.injection import ClusterAddresses
from wattloop_operator.workloads.workload_manifest import manifest

pytestmark = pytest.mark.integrations

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline"
PODS = 2


def container_of_pods() -> dict[str, Any]:
    """The training container of the first attempt."""
    read = read_job(EXAMPLE / "two-nodes.yaml")
    job = read.model_copy(
        update={"metadata": read.metadata.model_copy(update={"namespace": "team", "uid": "job-uid", "generation": 1})}
    )
    recurrence = decide(Snapshot(job), Attempt(0, 0, "1772323200", datetime(2026, 3, 1, tzinfo=UTC)))
    made = manifest(job, recurrence, ClusterAddresses())
    found: dict[str, Any] = made["spec"]["template"]["spec"]["containers"][0]
    return found


def variables_of_pod(container: dict[str, Any], index: int, port: int) -> dict[str, str]:
    """The variables of a container as a kubelet sets them, on a machine where all pods have one address."""
    found = {each["name"]: each.get("value", str(index)) for each in container["env"]}
    assert found["MASTER_ADDR"] == found["PET_MASTER_ADDR"]
    local = {"MASTER_ADDR": "127.0.0.1", "PET_MASTER_ADDR": "127.0.0.1"}
    return {**found, **local, "MASTER_PORT": str(port), "PET_MASTER_PORT": str(port)}


def of_another_python(arguments: list[str]) -> int:
    """Replace this process by another Python, as the pod's command does."""
    os.execv(sys.executable, [sys.executable, *arguments])


def of_torchrun(arguments: list[str]) -> int:
    """Run torchrun in this process, and have it fork its ranks, which saves six imports of PyTorch."""
    module, *options = arguments[1:]
    assert module == torch.distributed.run.__name__
    _as_in_an_interpreter_of_its_own()
    torch.distributed.run.main(["--start-method", "fork", "--run-path", *options])
    return 0


def of_the_environment(arguments: list[str]) -> int:
    """Run a script in this process."""
    sys.argv = arguments
    _as_in_an_interpreter_of_its_own()
    runpy.run_path(arguments[0], run_name="__main__")
    return 0


def _as_in_an_interpreter_of_its_own() -> None:
    sys.path.insert(0, str(EXAMPLE))
    # No warning is an error, and the log goes to the standard error.
    warnings.resetwarnings()
    logging.getLogger().handlers.clear()


def started(run: Callable[[list[str]], int], arguments: list[str], variables: dict[str, str], log: Path) -> int:
    """Start a pod; returns its process id."""

    def pod() -> int:
        os.chdir(EXAMPLE)
        os.environ.update(variables)
        return run(arguments)

    return forked(pod, log, log)


@pytest.mark.parametrize("launched_by", exhaustive_after(["torchrun", "environment", "another Python"], usual=2))
def test_two_pods_train_one_pipeline(launched_by: str, tmp_path: Path) -> None:
    container, port = container_of_pods(), free_port()
    run, arguments, ranks = {
        "torchrun": (of_torchrun, container["command"][1:], 2),
        "environment": (of_the_environment, ["train.py"], 1),
        "another Python": (of_another_python, container["command"][1:], 2),
    }[launched_by]
    logs = [tmp_path / f"pod-{index}" for index in range(PODS)]
    pods = [
        started(run, arguments, variables_of_pod(container, index, port) | {"WATTLOOP_MAX_EPOCHS": "1"}, log)
        for index, log in enumerate(logs)
    ]
    codes = exit_codes(pods)
    texts = [log.read_text() for log in logs]
    assert codes == [0, 0], texts
    assert "epoch 1 loss=" in texts[0]
    # One warning of each rank that no agent holds its clocks.
    assert [text.count("no agent:") for text in texts] == [ranks] * PODS


def test_each_line_that_the_page_adds_is_a_line_of_the_example() -> None:
    page = (EXAMPLE.parents[1] / "docs" / "pipeline.md").read_text(encoding="utf-8")
    ((name, diff),) = re.findall(r"```diff\n--- (\S+)\n(.*?)```", page, re.DOTALL)
    example = (EXAMPLE.parents[1] / name).read_text(encoding="utf-8")
    added = {line[1:].strip() for line in diff.splitlines() if line.startswith("+")}
    for line in added - {"attach(schedule, run=run)"}:
        assert line in example
    # The example gives it the clock of a simulated GPU as well.
    assert "attach(schedule, run=run, **gpu.options)" in example
    assert len(added) == 7
