"""What is no value of the chart is refused before anything is installed, and the refusal says where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chart.rendering import nested, render
from harness.chart import CHART
from harness.commands import ClusterCommand, CommandError


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("operatr", {}, "additional properties 'operatr' not allowed"),
        ("operator.replica", 1, "at '/operator': additional properties 'replica' not allowed"),
        ("operator.replicas", "1", "at '/operator/replicas': got string, want integer"),
        ("operator.replicas", -1, "at '/operator/replicas': minimum: got -1, want 0"),
        ("operator.replicas", 2, "at '/operator/replicas': maximum: got 2, want 1"),
        ("operator.image.repository", "", "at '/operator/image/repository'"),
        ("operator.image.repository", "name:tag", "at '/operator/image/repository'"),
        ("operator.image.digest", "sha256:12", "at '/operator/image/digest'"),
        ("operator.image.pullPolicy", "Sometimes", "value must be one of 'Always', 'IfNotPresent', 'Never'"),
        ("operator.logFormat", "xml", "at '/operator/logFormat': value must be one of 'json', 'text'"),
        ("operator.environment", [{"value": "x"}], "at '/operator/environment/0': missing property 'name'"),
        ("operator.environment", {"A": "b"}, "at '/operator/environment': got object, want array"),
        ("operator.resources", {"request": {}}, "additional properties 'request' not allowed"),
        ("operator.resources", {"limits": {"memory": "lots"}}, "at '/operator/resources/limits/memory'"),
        ("operator.nodeSelector", {"gpu": True}, "at '/operator/nodeSelector/gpu': got boolean, want string"),
        ("operator.terminationGracePeriodSeconds", 0, "minimum: got 0, want 1"),
        ("commonLabels", {"a": 1}, "at '/commonLabels/a': got number, want string"),
        ("imagePullSecrets", ["key"], "at '/imagePullSecrets/0': got string, want object"),
        ("rbac.extraRules", [{"resources": ["x"]}], "at '/rbac/extraRules/0': missing property 'verbs'"),
        ("database.type", "mysql", "at '/database/type': value must be one of 'sqlite', 'postgresql'"),
        ("database.type", "postgresql", "at '/database/postgresql/secretName': minLength: got 0, want 1"),
        ("database.sqlite.size", "big", "at '/database/sqlite/size'"),
        ("reporting.port", 70000, "at '/reporting/port': maximum: got 70,000, want 65,535"),
        ("reporting.url", "wattloop.example", "at '/reporting/url'"),
        ("reporting.service.type", "ExternalName", "at '/reporting/service/type'"),
        ("health.port", 0, "at '/health/port': minimum: got 0, want 1"),
        ("metrics.podMonitor.interval", "often", "at '/metrics/podMonitor/interval'"),
        ("networkPolicy.apiServerPorts", [], "at '/networkPolicy/apiServerPorts': minItems: got 0, want 1"),
        ("networkPolicy.enabled", "yes", "at '/networkPolicy/enabled': got string, want boolean"),
        ("agent.namespace", "GPU nodes", "at '/agent/namespace'"),
        ("agent.maxUnavailable", "many", "at '/agent/maxUnavailable'"),
        ("agent.socketFolder", "run/wattloop", "at '/agent/socketFolder'"),
        ("agent.minimumPowerLimitWatts", -5, "at '/agent/minimumPowerLimitWatts': minimum: got -5, want 0"),
    ],
    ids=lambda given: given if isinstance(given, str) and "'" not in given else "",
)
def test_a_wrong_value_is_refused(path: str, value: Any, told: str, helm: ClusterCommand, tmp_path: Path) -> None:
    with pytest.raises(CommandError) as refusal:
        render(helm, nested(path, value), tmp_path)
    assert "values don't meet the specifications of the schema" in refusal.value.stderr
    assert told in refusal.value.stderr


def test_the_default_values_pass_the_strict_linter(helm: ClusterCommand) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))
