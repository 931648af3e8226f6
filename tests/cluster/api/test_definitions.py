"""The CustomResourceDefinitions on a real API server: defaults, immutability, unions, columns, documentation."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.control_plane.commands import ClusterCommand, CommandError
from wattloop_operator.api.checks.documents import read_documents
from wattloop_operator.api.checks.schema_check import manifest_schema, with_defaults
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.schemas import KINDS
from wattloop_operator.api.training_recurrence import TrainingRecurrence

pytestmark = pytest.mark.usefixtures("crds")
MANIFESTS = Path(__file__).parents[2] / "manifests"
README = Path(__file__).parents[3] / "README.md"


def manifest(name: str) -> Any:
    """The first document of a valid manifest."""
    path = MANIFESTS / "valid" / f"{name}.yaml"
    return next(read_documents(str(path), path.read_text(encoding="utf-8"))).value


@pytest.mark.parametrize("name", ["minimal", "everything", "workload-jobset", "training-recurrence", "frequency-plan"])
def test_the_server_sets_the_same_defaults_as_validate_and_the_models(
    kubectl: ClusterCommand, namespace: str, name: str
) -> None:
    written = manifest(name)
    kubectl.apply(written, namespace=namespace)
    stored = kubectl.json("get", f"{written['kind'].lower()}/{written['metadata']['name']}", namespace=namespace)
    assert stored["spec"] == with_defaults(manifest_schema(written["kind"]), written)["spec"]
    model = next(model for model in KINDS if model.resource.kind == written["kind"])
    assert model.from_wire(stored).to_wire()["spec"] == model.from_wire(written).to_wire()["spec"]


def test_the_server_stores_the_wire_form_of_a_model_unchanged(kubectl: ClusterCommand, namespace: str) -> None:
    recurrence = TrainingRecurrence.from_wire(manifest("training-recurrence"))
    kubectl.apply(recurrence.to_wire(), namespace=namespace)
    stored = kubectl.json("get", "trec", recurrence.metadata.name, namespace=namespace)
    assert TrainingRecurrence.from_wire(stored).spec == recurrence.spec


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("training-recurrence", '{"spec": {"batchSize": 32}}'),
        ("training-recurrence", '{"spec": {"stopCostJoules": null}}'),
        ("frequency-plan", '{"spec": {"gpuProduct": "NVIDIA H200"}}'),
    ],
)
def test_a_decision_and_a_plan_are_immutable(kubectl: ClusterCommand, namespace: str, name: str, change: str) -> None:
    written = manifest(name)
    kubectl.apply(written, namespace=namespace)
    target = f"{written['kind'].lower()}/{written['metadata']['name']}"
    with pytest.raises(CommandError, match=r"an unchanged spec, since a (decision|plan) is immutable"):
        kubectl("patch", target, "--type=merge", f"--patch={change}", namespace=namespace)
    kubectl("label", target, "team=vision", namespace=namespace)


def shown(energy: str, metric: str) -> dict[str, str]:
    """What a summary of an ended recurrence shows."""
    return {"energy": energy, "metric": metric}


def test_kubectl_get_shows_state_saving_and_next_run_in_80_columns(kubectl: ClusterCommand, namespace: str) -> None:
    minimal = manifest("minimal")
    kubectl.apply(minimal | {"metadata": {"name": "nightly-resnet"}}, namespace=namespace)
    status = RecurringTrainingJob.from_wire(minimal).status.model_validate(
        {
            "best": {"batchSize": 32},
            "next": {"time": "2026-03-02T03:00:00Z"},
            "state": "Failing",
            "failure": "Crashed",
            "savings": [
                {"name": "Energy", "unit": "J", "text": "0.1 kWh (0.05 to 0.2)"},
                {"name": "Cost", "unit": "percent", "text": "31 % (25 to 36)"},
            ],
            "recentRecurrences": [
                {"name": "digits-2", "index": 2, "batchSize": 128},
                {"name": "digits-1", "index": 1, "batchSize": 32, "result": "Exhausted", **shown("0.2744 kWh", "0.9")},
                {"name": "digits-0", "index": 0, "batchSize": 64, "result": "Reached", **shown("0.3 kWh", "0.95")},
            ],
        }
    )
    _set_status(kubectl, namespace, "rtj/nightly-resnet", status.model_dump_json(by_alias=True, exclude_none=True))
    output = kubectl("get", "rtj", namespace=namespace)
    assert max(len(line) for line in output.splitlines()) <= 80
    heading, row = _table(output)
    assert heading == ["NAME", "STATE", "FAILURE", "COST SAVED", "NEXT RUN"]
    assert row == ["nightly-resnet", "Failing", "Crashed", "31 % (25 to 36)", "2026-03-02T03:00:00Z"]
    heading, row = _table(kubectl("get", "rtj", "--output=wide", namespace=namespace))
    shown_wide = dict(zip(heading, row, strict=False))
    assert [shown_wide[name] for name in ("MODE", "BATCH", "BEST")] == ["Optimize", "128", "32"]
    assert {"0.2744 kWh", "0.9", "0.1 kWh (0.05 to 0.2)"} <= set(row)


def test_kubectl_get_shows_the_mode_and_the_advice(kubectl: ClusterCommand, namespace: str) -> None:
    kubectl.apply(manifest("mode-advise"), namespace=namespace)
    status = RecurringTrainingJob.from_wire(manifest("minimal")).status.model_validate(
        {"next": {"batchSize": 32, "powerLimitWatts": 250, "savingPercent": "28.5", "reason": "it is cheapest"}}
    )
    _set_status(kubectl, namespace, "rtj/digits", status.model_dump_json(by_alias=True, exclude_none=True))
    output = kubectl("get", "rtj", "--output=wide", namespace=namespace)
    heading, row = _table(output)
    assert row[1] == "Advise"
    assert {"NEXT BATCH", "NEXT SAVES (%)"} <= set(heading)
    assert {"32", "28.5"} <= set(row)


def test_kubectl_get_shows_the_energy_and_time_of_each_recurrence(kubectl: ClusterCommand, namespace: str) -> None:
    written = manifest("training-recurrence")
    kubectl.apply(written, namespace=namespace)
    running = {
        "type": "Running",
        "status": "False",
        "reason": "Reached",
        "message": "accuracy reached 0.96 after 7 epochs",
        "lastTransitionTime": "2026-03-02T03:00:00Z",
    }
    status = (
        f'{{"result": "Reached", "conditions": [{json.dumps(running)}], '
        '"energy": "0.2744 kWh", "time": "31.5 min", "metric": "0.9501"}'
    )
    _set_status(kubectl, namespace, f"trec/{written['metadata']['name']}", status)
    heading, row = _table(kubectl("get", "trec", namespace=namespace))
    assert heading[1:9] == ["INDEX", "BATCH", "LIMIT (W)", "WHY", "STATE", "METRIC", "ENERGY", "TIME"]
    assert row[1:9] == ["3", "64", "250", "Sample", "Reached", "0.9501", "0.2744 kWh", "31.5 min"]
    heading, row = _table(kubectl("get", "trec", "--output=wide", namespace=namespace))
    assert (heading[-1], row[-1]) == ("MESSAGE", running["message"])


def test_kubectl_explain_states_when_to_use_which_policy(kubectl: ClusterCommand) -> None:
    text = " ".join(kubectl("explain", "rtj.spec.batchSize.policy").split())
    assert "ENUM: ThompsonSampling Zeus" in text
    assert "Zeus, for comparison only" in text


def test_the_readme_shows_the_actual_columns(kubectl: ClusterCommand, namespace: str) -> None:
    shown = [line for line in README.read_text(encoding="utf-8").splitlines() if line.startswith("NAME ")]
    for name, kind in (("minimal", "rtj"), ("training-recurrence", "trec")):
        kubectl.apply(manifest(name), namespace=namespace)
        heading, _ = _table(kubectl("get", kind, namespace=namespace))
        assert heading in [re.split(r"\s{2,}", line) for line in shown], kind


@pytest.mark.parametrize("model", KINDS, ids=lambda model: model.resource.short_name)
def test_kubectl_explain_describes_every_field(kubectl: ClusterCommand, model: Any) -> None:
    text = kubectl("explain", model.resource.short_name, "--recursive")
    assert f"KIND:       {model.resource.kind}" in text
    part = "spec" if "spec" in model.model_fields else "status"
    assert "<empty>" not in kubectl("explain", f"{model.resource.short_name}.{part}")


def _set_status(kubectl: ClusterCommand, namespace: str, target: str, status: str) -> None:
    patch = f'--patch={{"status": {status}}}'
    kubectl("patch", target, "--subresource=status", "--type=merge", patch, namespace=namespace)


def _table(printed: str) -> tuple[list[str], list[str]]:
    """Heading and first row of what kubectl printed; at least three blanks separate columns."""
    heading, row = (line.split("  ") for line in printed.splitlines()[:2])
    return [cell.strip() for cell in heading if cell.strip()], [cell.strip() for cell in row if cell.strip()]
