"""Pipelines that ask for a run and wait for it: the examples of docs/day-two.md on a real API server and operator.

Argo, Argo CD, Airflow, GitHub and Flux themselves are missing here. The tests run the commands that the files name, and
evaluate their conditions as these systems do.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from celpy import Environment
from celpy.adapter import json_to_cel

from support.binaries.build import ensure, find
from support.control_plane.commands import ClusterCommand, CommandError
from support.control_plane.driven_job import DrivenJob

EXAMPLES = Path(__file__).parents[3] / "examples" / "day-two"


def documents(name: str) -> list[dict[str, Any]]:
    """The documents of an example."""
    return list(yaml.safe_load_all((EXAMPLES / name).read_text(encoding="utf-8")))


def holds(requirement: str, job: Mapping[str, Any]) -> bool:
    """Whether a comparison of Argo's holds: a path of gjson, which exists and has this value."""
    path, operator, value = requirement.split(" ")
    assert operator == "=="
    found: Any = job
    for step in path.split("."):
        found = found.get(step) if isinstance(found, dict) else None
    return found is not None and str(found) == value


def is_true(expression: str, job: Mapping[str, Any]) -> bool:
    """Whether an expression of Flux holds, in which the fields of the object are variables."""
    environment = Environment()
    program = environment.program(environment.compile(expression))
    return bool(program.evaluate({name: json_to_cel(value) for name, value in job.items()}))


@pytest.fixture
def job(driven: DrivenJob, kubectl: ClusterCommand) -> DrivenJob:
    """The example's job, applied and reconciled, as yet without a run."""
    (manifest,) = documents("job.yaml")
    kubectl.apply(manifest, namespace=driven.key.namespace)
    driven.reconcile()
    return driven


def run_to(job: DrivenJob, request: str, index: int, *, reached: bool) -> None:
    """Run the recurrence of a request to its end."""
    job.reconcile()
    training = job.train(job.name_of(index=index, request=request))
    if reached:
        job.reach_target(training)
        return
    # A run that ends without its target; the retries that follow are switched off by the test.
    training.report(40.0, 0.5, finished=True)
    job.succeed(training)


def test_a_step_of_argo_asks_for_a_run_and_has_its_result(
    job: DrivenJob, kubectl: ClusterCommand, service_account_kubeconfig: Callable[[str, str], Path]
) -> None:
    namespace = job.key.namespace
    workflow, *rights = documents("argo-workflow.yaml")
    kubectl.apply(*rights, namespace=namespace)
    kubectl("patch", "rtj", "digits", "--type=merge", '--patch={"spec":{"retries": 0}}', namespace=namespace)
    (template,) = workflow["spec"]["templates"]
    resource = template["resource"]
    as_argo = kubectl.as_user(service_account_kubeconfig(namespace, workflow["spec"]["serviceAccountName"]))
    for index, (uid, reached) in enumerate((("0b6f-1", True), ("0b6f-2", False), ("0b6f-3", True))):

        def filled(text: str, uid: str = uid) -> str:
            return text.replace("{{workflow.uid}}", uid)

        # As Argo's executor does.
        patch = ("patch", "--type", resource["mergeStrategy"], "-p", filled(resource["manifest"]))
        as_argo(resource["action"], *patch[1:], *resource["flags"], "-o", "json", namespace=namespace)
        conditions = [filled(resource[name]) for name in ("failureCondition", "successCondition")]
        assert [holds(each, job.job) for each in conditions] == [False, False], "the result of an earlier run"
        job.reconcile()
        assert [holds(each, job.job) for each in conditions] == [False, False], "it has only started"
        run_to(job, uid, index, reached=reached)
        # Argo looks at the failure first.
        assert [holds(each, job.job) for each in conditions] == [not reached, True]


def steps(request: str) -> Iterator[tuple[str, str]]:
    """Name and script of each step of the example for GitHub, after that which writes the kubeconfig."""
    (workflow,) = documents("github-action.yaml")
    (made,) = workflow["jobs"].values()
    assert "REQUEST" in made["env"]
    for step in made["steps"][1:]:
        yield step["name"], f"export REQUEST={request}\n{step['run']}"


@pytest.mark.parametrize(("reached", "code"), [(True, 0), (False, 1)])
def test_the_steps_of_a_github_workflow_fail_unless_the_run_reaches_its_target(
    job: DrivenJob, kubectl: ClusterCommand, tmp_path: Path, reached: bool, code: int
) -> None:
    namespace = job.key.namespace
    kubectl("patch", "rtj", "digits", "--type=merge", '--patch={"spec":{"retries": 0}}', namespace=namespace)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(kubectl.kubeconfig.read_bytes())
    environment = {
        "PATH": f"{kubectl.program.parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "KUBECONFIG": str(kubeconfig),
    }
    kubectl.as_user(kubeconfig)("config", "set-context", "--current", f"--namespace={namespace}")
    (_, ask), (_, wait), (_, check) = steps("commit-1")
    # GitHub runs a script so.
    shell = ("bash", "-e", "-o", "pipefail", "-c")
    subprocess.run([*shell, ask], check=True, env=environment)
    job.reconcile()
    with subprocess.Popen([*shell, wait], env=environment) as waiting:
        try:
            assert waiting.poll() is None
            run_to(job, "commit-1", 0, reached=reached)
            assert waiting.wait(timeout=120) == 0
        finally:
            waiting.kill()
    checked = subprocess.run([*shell, check], check=False, env=environment, capture_output=True, text=True)
    assert checked.returncode == code
    assert checked.stdout == f"The run ended: {'Reached' if reached else 'Exhausted'}\n"


def test_flux_waits_for_the_state_of_a_job(job: DrivenJob, kubectl: ClusterCommand) -> None:
    (kustomization,) = documents("flux-kustomization.yaml")
    (check,) = kustomization["spec"]["healthCheckExprs"]
    assert (check["apiVersion"], check["kind"]) == (job.job["apiVersion"], job.job["kind"])

    def health() -> tuple[bool, bool]:
        return is_true(check["failed"], job.job), is_true(check["current"], job.job)

    assert health() == (False, True)
    suspend = ("patch", "rtj", "digits", "--type=merge", '--patch={"spec":{"suspend":true,"retries": 0}}')
    kubectl(*suspend, namespace=job.key.namespace)
    assert health() == (False, False), "the operator has not seen it yet"
    job.reconcile()
    assert health() == (False, True), "a suspended job is as it should be"
    fails = '--patch={"spec":{"suspend":false,"runRequest":"one","retries": 0}}'
    kubectl("patch", "rtj", "digits", "--type=merge", fails, namespace=job.key.namespace)
    job.reconcile()
    job.fail(job.train(job.name_of(request="one")), exit_code=1)
    assert health() == (True, False)


def lua(value: Any) -> str:
    """A value of JSON as a literal of Lua."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"[{json.dumps(key)}] = {lua(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def test_argo_cd_shows_the_state_of_a_job_as_its_health(
    job: DrivenJob, kubectl: ClusterCommand, tmp_path: Path
) -> None:
    if find("glua") is None and shutil.which("go") is None:
        pytest.skip("no Go, which builds Argo CD's Lua")
    glua = ensure(["glua"])["glua"]
    ((key, rule),) = documents("argocd-cm.yaml")[0]["data"].items()
    assert key == f"resource.customizations.health.{job.job['apiVersion'].split('/')[0]}_{job.job['kind']}"

    def health() -> str:
        script = tmp_path / "health.lua"
        # Argo CD gives the rule the object; what the rule does not read may have a form that Lua has not.
        read = {name: job.job.get("status", {}).get(name, "") for name in ("observedGeneration", "state", "failure")}
        obj = {"metadata": {"generation": job.job["metadata"]["generation"]}, "status": read}
        script.write_text(f"obj = {lua(obj)}\nh = (function()\n{rule}end)()\nprint(h.status .. ', ' .. h.message)\n")
        return subprocess.run([glua, script], check=True, capture_output=True, text=True).stdout.strip()

    assert health() == "Healthy, Waiting"
    suspend = ("patch", "rtj", "digits", "--type=merge", '--patch={"spec":{"suspend":true,"retries": 0}}')
    kubectl(*suspend, namespace=job.key.namespace)
    assert health() == "Progressing, the operator has not seen this version of the job"
    job.reconcile()
    assert health() == "Suspended, Suspended"
    fails = '--patch={"spec":{"suspend":false,"runRequest":"one","retries": 0}}'
    kubectl("patch", "rtj", "digits", "--type=merge", fails, namespace=job.key.namespace)
    job.reconcile()
    job.fail(job.train(job.name_of(request="one")), exit_code=1)
    assert health() == "Degraded, Failing: Crashed"


def test_kubectl_waits_no_longer_than_its_limit_for_a_run_that_can_not_start(
    job: DrivenJob, kubectl: ClusterCommand
) -> None:
    blocked = '--patch={"spec":{"suspend":true,"runRequest":"one"}}'
    kubectl("patch", "rtj", "digits", "--type=merge", blocked, namespace=job.key.namespace)
    job.reconcile()
    wait = ("wait", "rtj", "digits", "--for=jsonpath={.status.runRequest.ended}=one", "--timeout=1s")
    with pytest.raises(CommandError, match=r"timed out|not found"):
        kubectl(*wait, namespace=job.key.namespace)
    wait = ("wait", "rtj", "digits", "--for=condition=RunRequestWaits", "--timeout=60s")
    kubectl(*wait, namespace=job.key.namespace)
