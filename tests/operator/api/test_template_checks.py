"""`wattloop validate` bounds templates, one by one and those of a namespace together."""

import json
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from support.control_plane.job_manifest import job_manifest
from support.test_sets.parameters import exhaustive_after
from wattloop.commands.main import main
from wattloop_operator.api.template_checks import MAX_NAMESPACE_TEMPLATE_BYTES, chosen_containers, exceeded_limit
from wattloop_operator.api.workload_checks.fields import (
    CONTAINER_FIELDS,
    LATER_FIELDS,
    VARIABLE_FIELDS,
    fields_of,
    misspelt,
)


def manifest(name: str = "digits", **pod: Any) -> str:
    made = job_manifest(name)
    made["spec"]["template"]["spec"]["template"]["spec"] |= pod
    return json.dumps(made)


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("gpus", "text"),
    [
        ((1, 1), "the containers a and b train, as each has GPUs; spec.trainingContainers names those that train"),
        ((1, 1, 0), "of the containers a, b and c, a and b train: with GPUs; spec.trainingContainers names others"),
        ((0, 1), "of the containers a and b, b trains: with GPUs; spec.trainingContainers names others"),
        ((1,), ""),
    ],
)
def test_it_is_said_which_of_several_containers_train(gpus: tuple[int, ...], text: str) -> None:
    containers = [
        {"name": "abc"[index], "resources": {"limits": {"nvidia.com/gpu": count}}} for index, count in enumerate(gpus)
    ]
    assert chosen_containers({"spec": {"template": {"spec": {"containers": containers}}}}) == text


def test_a_template_at_each_bound_is_accepted_and_one_beyond_it_is_not() -> None:
    for bound, beyond in (
        (nested(32), nested(33)),
        ("x" * (128 * 1024 - 2), "x" * (128 * 1024 - 1)),
        ([0] * 8193, [0] * 8194),
    ):
        assert exceeded_limit(bound) is None
        assert exceeded_limit(beyond) is not None


def test_validate_says_what_is_too_large_where_and_what_would_be_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for pod, found in (
        ({"x": "x" * 200_000}, "bytes, expected at most 131072 bytes of JSON; move data and scripts into the image"),
        ({"x": nested(40)}, "found more levels, expected at most 32 levels of lists and objects"),
        ({"x": ["1"] * 9000}, "commas, expected at most 8192 commas"),
    ):
        file = tmp_path / "job.yaml"
        file.write_text(manifest(**pod), encoding="utf-8")
        assert main(["validate", str(file)]) == 2
        text = capsys.readouterr().out
        assert "spec.template" in text
        assert found in text


@pytest.mark.parametrize(
    "quantity",
    ["9223372036854775808", 2**63, "1e30", -1, "-1", "2k", "1500m", 1.5, "1" * 5_000, 1025, True, None, [], "２", ""],
)
def test_a_quantity_that_is_no_number_of_gpus_is_refused_where_it_stands(
    quantity: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.yaml"
    text = manifest(x=1).replace('"x": 1', f'"resources": {{"limits": {{"nvidia.com/gpu": {json.dumps(quantity)}}}}}')
    file.write_text(text, encoding="utf-8")
    assert main(["validate", str(file)]) == 2
    (line,) = capsys.readouterr().out.splitlines()
    assert "nvidia.com/gpu" in line
    assert line.endswith("expected a whole number of GPUs from 0 to 1024, without a suffix")
    assert len(line) < 500


def test_validate_accepts_a_template_with_a_number_of_more_than_64_bits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.yaml"
    made = json.loads(manifest())
    workload = {"apiVersion": "team.example/v1", "kind": "Training", "spec": {"x": 10**30}}
    made["spec"]["template"] = workload
    file.write_text(json.dumps(made), encoding="utf-8")
    main(["validate", str(file)])
    assert ": valid" in capsys.readouterr().out


@pytest.mark.parametrize("bound", exhaustive_after([512 * 1024, MAX_NAMESPACE_TEMPLATE_BYTES]))
def test_validate_bounds_the_templates_of_a_namespace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, bound: int
) -> None:
    # The message states the bound of the product, which the second one is.
    monkeypatch.setattr("wattloop_operator.api.template_checks.MAX_NAMESPACE_TEMPLATE_BYTES", bound)
    count = bound // 120_000 + 1
    files = [tmp_path / f"{number}.yaml" for number in range(count)]
    for file in files:
        annotations = {"team.example/notes": "x" * 120_000}
        made = json.loads(manifest(file.stem))
        made["spec"]["template"]["spec"]["template"]["metadata"] = {"annotations": annotations}
        file.write_text(json.dumps(made), encoding="utf-8")
    assert main(["validate", *map(str, files)]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.endswith(": valid")] == [lines[-1]]
    assert "bytes together with the templates of its namespace" in lines[-1]
    assert "expected at most 8388608 bytes in all RecurringTrainingJobs of a namespace" in lines[-1]


@pytest.mark.parametrize(
    ("container", "said"),
    [
        ({"args": ["--lr", 0.1]}, "containers[0].args[1]: found 0.1, expected a string, in quotes"),
        ({"command": "python train.py"}, "containers[0].command: found 'python train.py', expected a list"),
        ({"env": [{"name": "LR", "value": 1}]}, "containers[0].env[0].value: found 1, expected a string, in quotes"),
        ({"arg": ["--batch-size=8"]}, "containers[0].arg: found a list of 1, expected args (did you mean it?)"),
        (
            {"env": [{"name": "LR", "vlaue": "1"}]},
            "containers[0].env[0].vlaue: found '1', expected value (did you mean it?)",
        ),
        (
            {"args": ["--batch-size=$(WATTLOOP_BATCHSIZE)"]},
            "containers[0].args[0]: found '--batch-size=$(WATTLOOP_BATCHSIZE)', expected $(WATTLOOP_BATCH_SIZE) (did",
        ),
        ({"args": ["$(WATTLOOP_PARAM_LR) $$(WATTLOOP_BATCHSIZE) $(WATTLOOP_SEED) $(BATCHSIZE)"], "stdin": True}, ""),
    ],
)
def test_a_container_that_would_run_other_than_it_was_written_is_refused(
    container: dict[str, object], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = json.loads(manifest())
    (only,) = made["spec"]["template"]["spec"]["template"]["spec"]["containers"]
    file = tmp_path / "job.yaml"
    changed = json.dumps({"name": "train", "image": "a"} | container)
    file.write_text(json.dumps(made).replace(json.dumps(only), changed), encoding="utf-8")
    assert main(["validate", str(file)]) == (2 if said else 0)
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("field", "said"), [("restartPolcy", "expected restartPolicy (did you mean it?)"), ("hostUsers", ": valid")]
)
def test_a_misspelt_field_of_a_pod_is_named_and_a_rare_one_is_none(
    field: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = json.loads(manifest())
    pod = made["spec"]["template"]["spec"]["template"]["spec"]
    pod[field] = False if field == "hostUsers" else pod.pop("restartPolicy", "Never")
    (tmp_path / "job.yaml").write_text(json.dumps(made), encoding="utf-8")
    main(["validate", str(tmp_path / "job.yaml")])
    assert said in capsys.readouterr().out


def test_the_fields_of_a_pod_are_those_of_kubernetes_and_none_of_a_container_counts_as_misspelt() -> None:
    assert set(client.V1PodSpec.attribute_map.values()) == {*fields_of("PodSpec"), *LATER_FIELDS["PodSpec"]}
    assert set(client.V1EnvVar.attribute_map.values()) == set(VARIABLE_FIELDS)
    of_containers = set(client.V1Container.attribute_map.values())
    assert set(CONTAINER_FIELDS) <= of_containers
    # A field that is close to a known one counts only where that one is missing.
    rare = dict.fromkeys(of_containers.difference(CONTAINER_FIELDS))
    assert misspelt({"spec": {"template": {"spec": {"containers": [rare]}}}}) is None
