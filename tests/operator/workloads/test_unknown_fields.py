"""A field that the API server would drop is named by its path in the template, and none that Wattloop adds."""

from typing import Any

import pytest

from wattloop_operator.api.template import Template
from wattloop_operator.workloads.workload_manifest import unknown_field

POD = {"spec": {"containers": [{"name": "a"}, {"name": "b", "imagePullPolcy": "Always"}]}}
TRAIN_SET = {"apiVersion": "example.com/v1", "kind": "TrainSet", "spec": {"workers": {"template": POD}}}
FIELD = "spec.containers[1].imagePullPolcy"
CANNOT = 'TrainSet in version "v1" cannot be handled as a TrainSet: strict decoding error: '


@pytest.mark.parametrize(
    ("template", "paths", "named"),
    [
        ({"spec": {"template": POD}}, [f"spec.template.{FIELD}"], f"spec.template.spec.template.{FIELD}"),
        (TRAIN_SET, [f"spec.workers.template.{FIELD}"], f"spec.template.spec.workers.template.{FIELD}"),
        (TRAIN_SET, ["spec.added", f"spec.workers.template.{FIELD}"], FIELD),
        (TRAIN_SET, ["spec.added", "metadata.labels", "spec.workers[7]", "", 'a\\"b'], ""),
    ],
)
def test_a_field_that_the_api_server_would_drop_is_named_by_its_path_in_the_template(
    template: dict[str, Any], paths: list[str], named: str
) -> None:
    rejection = CANNOT + ", ".join(f'unknown field "{path}"' for path in paths)
    found = unknown_field(Template.model_validate(template), {"spec": template["spec"]}, rejection)
    assert (found is not None) == bool(named)
    assert found is None or f"{named}: found 'Always', expected no field of this name" in str(found)


@pytest.mark.parametrize(("index", "named"), [(3, True), (1, False)], ids=["the user's variable", "one of Wattloop's"])
def test_a_field_of_a_variable_is_found_behind_those_that_wattloop_puts_before_it(index: int, named: bool) -> None:
    own = [{"name": "A", "value": "1"}, {"name": "B", "secretKeyRef": {"name": "s", "key": "k"}}]
    injected = [{"name": "WATTLOOP_JOB", "value": "x"}, {"name": "WATTLOOP_TOKEN_FILE", "value": "y"}]

    def job(env: list[dict[str, Any]]) -> dict[str, Any]:
        return {"template": {"spec": {"containers": [{"name": "a", "env": env}]}}}

    rejection = f'{CANNOT}unknown field "spec.template.spec.containers[0].env[{index}].secretKeyRef"'
    found = unknown_field(Template.model_validate({"spec": job(own)}), {"spec": job(injected + own)}, rejection)
    assert (found is not None) == named
    assert found is None or "spec.template.spec.template.spec.containers[0].env[1].secretKeyRef: found" in str(found)
