"""The command of an attempt: that of the container, as Kubernetes starts it."""

import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from support.backends.model_backend import job
from support.local_runs.local_runs import LocalJob
from wattloop.errors import InputError
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.local.command import command_of

INJECTED = {"WATTLOOP_BATCH_SIZE": "64", "WATTLOOP_SEED": "7"}


def job_of(*containers: dict[str, Any], **spec: Any) -> RecurringTrainingJob:
    named = [{"name": f"c{index}", "image": "none", **container} for index, container in enumerate(containers)]
    return job(template={"spec": {"template": {"spec": {"containers": named}}}}, **spec)


def env(**variables: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in variables.items()]


@pytest.mark.parametrize(
    ("container", "arguments"),
    [
        ({"command": ["python", "train.py"]}, ("python", "train.py")),
        ({"command": ["python"], "args": ["train.py", "--lr", "0.1"]}, ("python", "train.py", "--lr", "0.1")),
        ({"command": ["run", "$(WATTLOOP_BATCH_SIZE)"]}, ("run", "64")),
        ({"command": ["run", "--b=$(WATTLOOP_BATCH_SIZE)$(WATTLOOP_SEED)"]}, ("run", "--b=647")),
        ({"command": ["run", "$(UNKNOWN)", "$$(WATTLOOP_SEED)"]}, ("run", "$(UNKNOWN)", "$(WATTLOOP_SEED)")),
        ({"command": ["run", "$(A)"], "env": env(A="$(WATTLOOP_SEED)0")}, ("run", "70")),
        ({"command": ["run", "$(B)"], "env": env(A="1", B="$(A)$(C)", C="3")}, ("run", "1$(C)")),
        ({"command": ["run", "; rm -rf /", "`id`"]}, ("run", "; rm -rf /", "`id`")),
    ],
)
def test_arguments_are_expanded_as_in_kubernetes(container: dict[str, Any], arguments: tuple[str, ...]) -> None:
    assert command_of(job_of(container), INJECTED, "job.yaml").arguments == arguments


def test_the_containers_own_variables_are_its_environment() -> None:
    command = command_of(job_of({"command": ["run"], "env": env(A="x", B="$(A)y")}), INJECTED, "job.yaml")
    assert command.environment == {"A": "x", "B": "xy"}


def test_the_training_container_runs() -> None:
    job_with_sidecar = job_of({"command": ["sidecar"]}, {"command": ["train"]}, trainingContainers=["c1"])
    assert command_of(job_with_sidecar, INJECTED, "job.yaml").arguments == ("train",)


def test_only_a_job_template_can_run_as_a_process() -> None:
    workload = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {}}
    with pytest.raises(InputError, match=r"job\.yaml: found spec.template.kind JobSet, expected a Job"):
        command_of(job(template=workload), INJECTED, "job.yaml")


@pytest.mark.parametrize(
    ("container", "changes", "message"),
    [
        ({"env": env(**{"A=B": "x"})}, {}, r"found a variable with the name 'A=B' in container 'c0', expected a name"),
        ({"env": env(**{"A\0B": "x"})}, {}, r"a variable with the name 'A\\x00B'"),
        ({"env": env(**{"": "x"})}, {}, "a variable with the name ''"),
        ({"env": env(A="x\0")}, {}, "found a NUL character in the value of A, expected a text without one"),
        ({"args": ["a\0b"]}, {}, "found a NUL character in argument 1 of its command"),
    ],
)
def test_a_text_that_no_process_can_get_is_an_error_before_the_start(
    container: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    local = job(
        template={"spec": {"template": {"spec": {"containers": [{"name": "c0", "command": ["run"], **container}]}}}},
        **changes,
    )
    with pytest.raises(InputError, match=message):
        command_of(local, INJECTED, "job.yaml")


pytestmark = pytest.mark.processes


def test_a_module_that_wattloops_own_python_lacks_is_named_once_with_the_way_to_another(
    local_job: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    local_job.job("import no_such_module.part")
    assert local_job.run("--recurrences", "2") == 1
    error = capsys.readouterr().err
    own = Path(sys.executable).parent / "python"
    assert error.count(f"{own} (Wattloop's own Python) has no module no_such_module; for another Python, begin") == 1


def test_another_python_without_the_client_is_named_with_the_command_that_installs_it(
    local_job: LocalJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    venv.create(tmp_path / "own", with_pip=False)
    python = str(tmp_path / "own" / "bin" / "python")
    local_job.job()
    local_job.manifest.write_text(local_job.manifest.read_text().replace("- python\n", f"- {python}\n"))
    assert local_job.run("--recurrences", "1") == 1
    error = capsys.readouterr().err
    assert error.count(f"{python} has no Wattloop client; install it with: {python} -m pip install /") == 1


def test_another_failure_names_no_python(local_job: LocalJob, capsys: pytest.CaptureFixture[str]) -> None:
    local_job.job("print('missing.csv'); open('missing.csv')")
    assert local_job.run("--recurrences", "1") == 1
    assert "own Python" not in capsys.readouterr().err
