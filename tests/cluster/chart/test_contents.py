"""What the chart holds agrees with what the rest of the repository says."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from chart.rendering import at, chosen, render
from harness.chart import CHART, REPOSITORY
from harness.commands import ClusterCommand
from wattloop_agent.settings import SETTINGS

CONTAINERFILES = REPOSITORY / "images"


def test_the_definitions_are_those_of_crds_and_are_kept(helm: ClusterCommand, tmp_path: Path) -> None:
    files = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in (REPOSITORY / "crds").glob("*.yaml")]
    rendered = chosen(render(helm, {}, tmp_path), "CustomResourceDefinition")
    for definition in rendered:
        assert definition["metadata"].pop("annotations")["helm.sh/resource-policy"] == "keep"
        definition["metadata"].pop("labels")
    assert sorted(rendered, key=str) == sorted(files, key=str)


def test_a_package_of_the_chart_has_the_definitions_in_it(helm: ClusterCommand, tmp_path: Path) -> None:
    helm("package", str(CHART), f"--destination={tmp_path}")
    (package,) = tmp_path.glob("wattloop-*.tgz")
    from_package = helm("template", "probe", str(package))
    assert from_package.count("kind: CustomResourceDefinition") == len(list((REPOSITORY / "crds").glob("*.yaml")))


@pytest.mark.parametrize("container", ["setter", "reader"])
def test_the_agent_knows_every_setting_that_it_is_given(container: str, helm: ClusterCommand, tmp_path: Path) -> None:
    values = {"agent": {"minimumPowerLimitWatts": 100, "maximumPowerLimitWatts": 300}}
    (daemon_set,) = chosen(render(helm, values, tmp_path), "DaemonSet")
    known = {setting.variable: setting for setting in SETTINGS}
    given = at(daemon_set, f"spec.template.spec.containers[{container}].env")
    settings = {each["name"]: each["value"] for each in given if each["name"].startswith("WATTLOOP_")}
    assert len(settings) >= 5
    for name, value in settings.items():
        known[name].read(value)


def test_only_the_setter_may_change_a_gpu(helm: ClusterCommand, tmp_path: Path) -> None:
    (daemon_set,) = chosen(render(helm, {}, tmp_path), "DaemonSet")
    setter = at(daemon_set, "spec.template.spec.containers[setter].securityContext")
    reader = at(daemon_set, "spec.template.spec.containers[reader].securityContext")
    assert setter["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    assert reader["capabilities"] == {"drop": ["ALL"]}
    assert reader["runAsNonRoot"] is True
    assert at(daemon_set, "spec.template.spec.automountServiceAccountToken") is False
    assert at(daemon_set, "spec.template.spec.containers[reader].resources.limits").keys() == {"memory"}


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
def test_no_pod_takes_a_gpu(kind: str, helm: ClusterCommand, tmp_path: Path) -> None:
    assert "nvidia.com/gpu:" not in yaml.safe_dump(
        [at(item, "spec.template.spec.containers") for item in chosen(render(helm, {}, tmp_path), kind)]
    )
