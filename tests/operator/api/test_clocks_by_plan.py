"""Whether a job's ranks get clocks by a plan: by the mode of power limits."""

from pathlib import Path
from typing import Any

import pytest

from wattloop.errors import InputError
from wattloop_operator.api.frequency_plan import FrequencyPlan, decode_archive
from wattloop_operator.api.manifests import check_file
from wattloop_operator.api.power_fields import PlanChoiceRule, Power

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"


@pytest.mark.parametrize(
    ("power", "choice"),
    [
        ({}, None),
        ({"mode": "Fixed", "watts": 200}, None),
        ({"mode": "None"}, PlanChoiceRule.FASTEST),
        ({"mode": "None", "frequencyPlan": {"choice": "Cost"}}, PlanChoiceRule.COST),
        ({"mode": "None", "frequencyPlan": {"name": "mine"}}, PlanChoiceRule.FASTEST),
    ],
)
def test_a_job_gets_clocks_by_a_plan_only_without_power_limits(
    power: dict[str, Any], choice: PlanChoiceRule | None
) -> None:
    settings = Power.from_wire(power).clocks_by_plan
    assert (None if settings is None else settings.choice) == choice


def test_the_archive_of_a_manifest_has_its_plans() -> None:
    (plan,) = check_file(str(MANIFESTS / "valid" / "frequency-plan-archive.yaml")).valid
    assert isinstance(plan, FrequencyPlan)
    assert plan.spec.archive is not None
    archive = decode_archive(plan.spec.archive)
    assert (archive.stages, archive.operations, archive.gpu_product) == (2, 8, "NVIDIA A40")
    assert archive.stage_clocks(len(archive.points) - 1, 0) == (1410, 1200, 1200, 1410)


@pytest.mark.parametrize(
    ("text", "found"), [("H4sI", "incomplete data"), ("YWJj", "data that gzip does not read"), ("abc", "not base64")]
)
def test_another_archive_is_refused_with_what_it_is(text: str, found: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=found):
        decode_archive(text)
    manifest = tmp_path / "plan.yaml"
    manifest.write_text(
        f"apiVersion: wattloop.dev/v1alpha1\nkind: FrequencyPlan\nmetadata: {{name: plan}}\nspec: {{archive: {text}}}\n"
    )
    (problem,) = check_file(str(manifest)).problems
    assert problem.path == "spec.archive"
    assert found in problem.found
