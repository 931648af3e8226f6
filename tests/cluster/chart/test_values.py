"""Every value of the chart has the effect that values.yaml says, and is in the schema."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.chart.rendering import ABSENT, at, chosen, nested, render
from support.control_plane.chart import CHART
from support.control_plane.commands import ClusterCommand

POSTGRESQL = {"database.type": "postgresql", "database.postgresql.secretName": "db"}
OWN_CERTIFICATE = {"reporting.tls.mode": "secret", "reporting.tls.secretName": "tls"}
ALERTED = {"metrics.alerts.enabled": True}
SHOWN = {"metrics.dashboards.enabled": True}
ANY_POD: dict[str, Any] = {"namespaceSelector": {}}
PEER = {"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}
REPORTED = {"networkPolicy.reportsFrom": [PEER]}
READ = {"networkPolicy.metricsFrom": [PEER]}
MONITORED = {"metrics.podMonitor.enabled": True, **READ}
OPERATOR = "spec.template.spec.containers[operator]"
POWER_CONTROLLER = "spec.template.spec.containers[power-controller]"
MONITOR = "spec.template.spec.containers[monitor]"
POD = "spec.template.spec"
DATABASE_URL = f"{OPERATOR}.env[WATTLOOP_DATABASE].valueFrom.secretKeyRef"
REPORT_URL = f"{OPERATOR}.args[--report-url]"
REPORT_AUTHORITY = "--report-certificate-authority"
AUTHORITY = f"{POD}.volumes[reporting].projected.sources[1].configMap.name"
CERTIFICATE = f"{POD}.volumes[reporting-certificate].secret.secretName"
ENDPOINT = "spec.podMetricsEndpoints[0].interval"
UI = "spec.template.spec.containers[ui]"
SEEN = {"ui.enabled": True}
HOSTED = {**SEEN, "ui.hosts": ["a.example"], "ui.tlsSecretName": "tls", "networkPolicy.uiFrom": [ANY_POD]}
SERVICE = "probe-wattloop-operator.home.svc:8080"
LABELS = {"team": "trains"}
TOLERATION = {"key": "a", "operator": "Exists"}
VARIABLE = {"name": "A", "value": "b"}
KIND = {"group": "jobset.x-k8s.io", "kind": "JobSet", "resource": "jobsets"}
RULE_OF_KIND = {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["get", "create", "delete"]}
MAKERS = (
    "'system:serviceaccount:home:probe-wattloop-operator', 'system:serviceaccount:kube-system:job-controller', "
    "'system:kube-controller-manager'"
)
VOLUME = {"name": "driver", "hostPath": {"path": "/opt/driver"}}
MOUNT = {"name": "driver", "mountPath": "/opt/driver"}
RESOURCES = {"requests": {"cpu": "2"}}
AFFINITY = {"nodeAffinity": {}}
EGRESS = {"ports": [{"port": 1}]}
DIGEST = "sha256:" + "0" * 64
SPREAD = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
PRICE = {"currency": "EUR", "perKilowattHour": "0.25"}
TARIFF_FILE = "--tariff=/etc/wattloop/tariff/tariff.yaml"


Row = tuple[str, Any, str, str, Any, dict[str, Any]]
# The path, another value, where its effect shows, the expected content there, and the values that it needs.
TABLE: list[Row] = [
    ("nameOverride", "loop", "Deployment", "metadata.name", "probe-loop-operator", {}),
    ("fullnameOverride", "loop", "Deployment", "metadata.name", "loop-operator", {}),
    ("commonLabels", LABELS, "Service", "metadata.labels.team", "trains", {}),
    ("imagePullSecrets", [{"name": "key"}], "DaemonSet", f"{POD}.imagePullSecrets", [{"name": "key"}], {}),
    ("crds.install", True, "CustomResourceDefinition", "spec.group", "wattloop.dev", {}),
    ("rbac.create", False, "ClusterRole", "", ABSENT, {}),
    ("rbac.userRoles", False, "ClusterRole/users", "", ABSENT, {}),
    ("admission.authors.enabled", False, "ValidatingAdmissionPolicy/authors", "", ABSENT, {}),
    ("admission.reportTokens.enabled", False, "ValidatingAdmissionPolicy/report-tokens", "", ABSENT, {}),
    (
        "admission.reportTokens.users",
        ["eve"],
        "ValidatingAdmissionPolicy/report-tokens",
        "spec.matchConditions[0].expression",
        f"!(request.userInfo.username in [{MAKERS}, 'eve'])",
        {},
    ),
    ("admission.queues.enabled", True, "ValidatingAdmissionPolicy/queues", "spec.failurePolicy", "Fail", {}),
    ("admission.agentSocket.enabled", False, "ValidatingAdmissionPolicy/agent-socket", "", ABSENT, {}),
    ("operator.namespaces", ["a", "b"], "Deployment", f"{OPERATOR}.args[--namespaces]", "--namespaces=a,b", {}),
    ("operator.workloadKinds", [KIND], "ClusterRole/operator", "rules[16]", RULE_OF_KIND, {}),
    (
        "operator.workloadKinds",
        [KIND | {"readOnly": True}],
        "ClusterRole/operator",
        "rules[16]",
        RULE_OF_KIND | {"verbs": ["get"]},
        {},
    ),
    ("operator.replicas", 0, "Deployment", "spec.replicas", 0, {}),
    ("operator.replicas", 3, "Deployment", "spec.replicas", 3, POSTGRESQL),
    ("operator.image.repository", "r:5/o", "Deployment", f"{OPERATOR}.image", "r:5/o:0.1.0", {}),
    ("operator.image.tag", "1", "Deployment", f"{OPERATOR}.image", "wattloop/operator:1", {}),
    ("operator.image.digest", DIGEST, "Deployment", f"{OPERATOR}.image", f"wattloop/operator@{DIGEST}", {}),
    ("operator.image.pullPolicy", "Always", "Deployment", f"{OPERATOR}.imagePullPolicy", "Always", {}),
    ("operator.serviceAccount.create", False, "ServiceAccount/operator", "", ABSENT, {}),
    ("operator.serviceAccount.name", "me", "Deployment", f"{POD}.serviceAccountName", "me", {}),
    ("operator.serviceAccount.annotations", LABELS, "ServiceAccount/operator", "metadata.annotations", LABELS, {}),
    ("operator.logFormat", "text", "Deployment", f"{OPERATOR}.args[--log-format]", "--log-format=text", {}),
    ("operator.logLevel", "debug", "Deployment", f"{OPERATOR}.args[--log-level]", "--log-level=debug", {}),
    ("operator.readPodLogs", True, "Deployment", f"{OPERATOR}.args[--read-pod-logs]", "--read-pod-logs=yes", {}),
    ("operator.readPodLogs", True, "ClusterRole/operator", "rules[13].resources", ["pods/log"], {}),
    ("operator.kueue", True, "ClusterRole/operator", "rules[13].resources", ["workloads"], {}),
    ("operator.environment", [VARIABLE], "Deployment", f"{OPERATOR}.env[A].value", "b", {}),
    ("operator.resources", {**RESOURCES, "limits": None}, "Deployment", f"{OPERATOR}.resources.requests.cpu", "2", {}),
    ("operator.extraVolumes", [VOLUME], "Deployment", f"{POD}.volumes[driver]", VOLUME, {}),
    ("operator.extraVolumeMounts", [MOUNT], "Deployment", f"{OPERATOR}.volumeMounts[driver]", MOUNT, {}),
    ("operator.podAnnotations", LABELS, "Deployment", "spec.template.metadata.annotations.team", "trains", {}),
    ("operator.podLabels", LABELS, "Deployment", "spec.template.metadata.labels.team", "trains", {}),
    ("operator.nodeSelector", LABELS, "Deployment", f"{POD}.nodeSelector", LABELS, {}),
    ("operator.tolerations", [TOLERATION], "Deployment", f"{POD}.tolerations", [TOLERATION], {}),
    ("operator.affinity", AFFINITY, "Deployment", f"{POD}.affinity", AFFINITY, {}),
    ("operator.topologySpreadConstraints", [SPREAD], "Deployment", f"{POD}.topologySpreadConstraints[0]", SPREAD, {}),
    ("operator.priorityClassName", "high", "Deployment", f"{POD}.priorityClassName", "high", {}),
    ("database.type", "postgresql", "PersistentVolumeClaim", "", ABSENT, {"database.postgresql.secretName": "db"}),
    ("database.sqlite.existingClaim", "mine", "PersistentVolumeClaim", "", ABSENT, {}),
    ("database.sqlite.storageClassName", "fast", "PersistentVolumeClaim", "spec.storageClassName", "fast", {}),
    ("database.sqlite.size", "5Gi", "PersistentVolumeClaim", "spec.resources.requests.storage", "5Gi", {}),
    (
        "database.postgresql.secretName",
        "db",
        "Deployment",
        DATABASE_URL,
        {"name": "db", "key": "url"},
        {"database.type": "postgresql"},
    ),
    ("database.postgresql.secretKey", "uri", "Deployment", f"{DATABASE_URL}.key", "uri", POSTGRESQL),
    ("reporting.url", "https://x.example/a", "Deployment", REPORT_URL, "--report-url=https://x.example/a", {}),
    ("reporting.tls.mode", "none", "Deployment", REPORT_URL, f"--report-url=http://{SERVICE}", {}),
    ("reporting.tls.mode", "none", "Certificate", "", ABSENT, {}),
    ("reporting.tls.mode", "secret", "Certificate", "", ABSENT, {"reporting.tls.secretName": "own"}),
    ("reporting.tls.secretName", "tls", "Deployment", CERTIFICATE, "tls", {}),
    (
        "reporting.tls.authorityKey",
        "a.crt",
        "Deployment",
        f"{OPERATOR}.args[--report-certificate-authority]",
        "--report-certificate-authority=/etc/wattloop/reporting/a.crt",
        OWN_CERTIFICATE,
    ),
    ("reporting.tls.agentConfigMap", "corporate", "DaemonSet", AUTHORITY, "corporate", OWN_CERTIFICATE),
    ("reporting.tls.agentConfigMap", "corporate", "DaemonSet", AUTHORITY, "corporate", {}),
    ("reporting.tls.agentConfigMap", "corporate", "Certificate/agent", "", ABSENT, {}),
    ("reporting.tls.certManager.issuer.name", "one", "Certificate", "spec.issuerRef.name", "one", {}),
    ("reporting.tls.certManager.issuer.kind", "C", "Certificate", "spec.issuerRef.kind", "C", {}),
    ("reporting.tls.certManager.issuer.group", "g", "Certificate", "spec.issuerRef.group", "g", {}),
    ("reporting.tls.certManager.duration", "24h", "Certificate", "spec.duration", "24h", {}),
    ("reporting.service.type", "NodePort", "Service", "spec.type", "NodePort", {}),
    ("reporting.service.annotations", LABELS, "Service", "metadata.annotations", LABELS, {}),
    ("metrics.podMonitor.enabled", True, "PodMonitor/agent", "metadata.namespace", "wattloop-agent", READ),
    ("metrics.podMonitor.labels", LABELS, "PodMonitor/operator", "metadata.labels.team", "trains", MONITORED),
    ("metrics.podMonitor.interval", "5s", "PodMonitor/operator", ENDPOINT, "5s", MONITORED),
    ("tariff", PRICE, "Deployment/operator", f"{OPERATOR}.args[--tariff]", TARIFF_FILE, {}),
    ("tariff", PRICE, "Deployment/ui", f"{UI}.args[--tariff]", TARIFF_FILE, SEEN),
    ("tariff", PRICE, "ConfigMap/operator", "data", {"tariff.yaml": 'currency: EUR\nperKilowattHour: "0.25"\n'}, {}),
    ("metrics.alerts.enabled", True, "PrometheusRule", "spec.groups[wattloop-agent].rules[0].for", "5m", {}),
    ("metrics.alerts.labels", LABELS, "PrometheusRule", "metadata.labels.team", "trains", ALERTED),
    (
        "metrics.alerts.runbookUrl",
        "https://docs.example/monitoring.html",
        "PrometheusRule",
        "spec.groups[wattloop-agent].rules[0].annotations.runbook_url",
        "https://docs.example/monitoring.html#wattloopagentdown",
        ALERTED,
    ),
    ("metrics.dashboards.enabled", True, "ConfigMap/monitoring", "metadata.namespace", "home", {}),
    ("metrics.dashboards.namespace", "eyes", "ConfigMap/monitoring", "metadata.namespace", "eyes", SHOWN),
    ("metrics.dashboards.labels", LABELS, "ConfigMap/monitoring", "metadata.labels.team", "trains", SHOWN),
    ("metrics.dashboards.annotations", LABELS, "ConfigMap/monitoring", "metadata.annotations", LABELS, SHOWN),
    ("podDisruptionBudget.enabled", False, "PodDisruptionBudget", "", ABSENT, {}),
    ("networkPolicy.enabled", False, "NetworkPolicy", "", ABSENT, {}),
    ("networkPolicy.reportsFrom", [PEER], "NetworkPolicy/operator", "spec.ingress[0].from", [PEER], {}),
    ("networkPolicy.metricsFrom", [PEER], "NetworkPolicy/agent", "spec.ingress[0].from", [PEER], {}),
    ("networkPolicy.metricsFrom", [PEER], "NetworkPolicy/operator", "spec.ingress[2].from", [PEER], REPORTED),
    ("networkPolicy.apiServerPorts", [8443], "NetworkPolicy/operator", "spec.egress[1].ports[0].port", 8443, {}),
    ("networkPolicy.databasePort", 6432, "NetworkPolicy/operator", "spec.egress[2].ports[0].port", 6432, POSTGRESQL),
    ("networkPolicy.extraEgress", [EGRESS], "NetworkPolicy/operator", "spec.egress[2]", EGRESS, {}),
    ("networkPolicy.agentExtraEgress", [EGRESS], "NetworkPolicy/agent", "spec.egress[2]", EGRESS, {}),
    (
        "networkPolicy.uiFrom",
        [PEER],
        "NetworkPolicy/ui",
        "spec.ingress[1].from",
        [PEER],
        HOSTED | {"networkPolicy.uiFrom": [ANY_POD]},
    ),
    ("ui.enabled", True, "Deployment/ui", "metadata.name", "probe-wattloop-ui", {}),
    ("ui.image.repository", "r/u", "Deployment/ui", f"{UI}.image", "r/u:0.1.0", SEEN),
    ("ui.image.tag", "1", "Deployment/ui", f"{UI}.image", "wattloop/ui:1", SEEN),
    ("ui.image.digest", DIGEST, "Deployment/ui", f"{UI}.image", f"wattloop/ui@{DIGEST}", SEEN),
    ("ui.image.pullPolicy", "Never", "Deployment/ui", f"{UI}.imagePullPolicy", "Never", SEEN),
    ("ui.hosts", ["b.example"], "Deployment/ui", f"{UI}.args[--hosts]", "--hosts=b.example", HOSTED),
    ("ui.tlsSecretName", "mine", "Deployment/ui", f"{POD}.volumes[certificate].secret.secretName", "mine", HOSTED),
    ("ui.resources", {**RESOURCES, "limits": None}, "Deployment/ui", f"{UI}.resources.requests.cpu", "2", SEEN),
    ("ui.nodeSelector", LABELS, "Deployment/ui", f"{POD}.nodeSelector", LABELS, SEEN),
    ("ui.tolerations", [TOLERATION], "Deployment/ui", f"{POD}.tolerations", [TOLERATION], SEEN),
    ("check.enabled", False, "Pod", "", ABSENT, {}),
    ("check.namespace", "team", "Role/check", "metadata.namespace", "team", {}),
    ("agent.enabled", False, "DaemonSet", "", ABSENT, {}),
    ("agent.namespace", "gpus", "DaemonSet", "metadata.namespace", "gpus", {}),
    ("agent.createNamespace", False, "Namespace", "", ABSENT, {}),
    ("agent.image.repository", "r/a", "DaemonSet", f"{MONITOR}.image", "r/a:0.1.0", {}),
    ("agent.image.tag", "1", "DaemonSet", f"{POWER_CONTROLLER}.image", "wattloop/agent:1", {}),
    ("agent.image.digest", DIGEST, "DaemonSet", f"{MONITOR}.image", f"wattloop/agent@{DIGEST}", {}),
    ("agent.image.pullPolicy", "Never", "DaemonSet", f"{POWER_CONTROLLER}.imagePullPolicy", "Never", {}),
    ("agent.runtimeClassName", "", "DaemonSet", f"{POD}.runtimeClassName", ABSENT, {}),
    ("agent.nodeSelector", LABELS, "DaemonSet", f"{POD}.nodeSelector.team", "trains", {}),
    ("agent.tolerations", [TOLERATION], "DaemonSet", f"{POD}.tolerations", [TOLERATION], {}),
    ("agent.affinity", AFFINITY, "DaemonSet", f"{POD}.affinity", AFFINITY, {}),
    ("agent.priorityClassName", "", "DaemonSet", f"{POD}.priorityClassName", ABSENT, {}),
    ("agent.maxUnavailable", "10%", "DaemonSet", "spec.updateStrategy.rollingUpdate.maxUnavailable", "10%", {}),
    ("agent.mountSocket", False, "Deployment", f"{OPERATOR}.args[--agent-socket-folder]", ABSENT, {}),
    ("agent.privileged", True, "DaemonSet", f"{POWER_CONTROLLER}.securityContext.privileged", True, {}),
    ("agent.extraVolumes", [VOLUME], "DaemonSet", f"{POD}.volumes[driver]", VOLUME, {}),
    ("agent.extraVolumeMounts", [MOUNT], "DaemonSet", f"{MONITOR}.volumeMounts[driver]", MOUNT, {}),
    ("agent.extraVolumeMounts", [MOUNT], "DaemonSet", f"{POWER_CONTROLLER}.volumeMounts[driver]", MOUNT, {}),
    ("agent.logFormat", "text", "DaemonSet", f"{MONITOR}.env[WATTLOOP_AGENT_LOG_FORMAT].value", "text", {}),
    ("agent.logLevel", "debug", "DaemonSet", f"{POWER_CONTROLLER}.env[WATTLOOP_AGENT_LOG_LEVEL].value", "debug", {}),
    ("agent.environment", [VARIABLE], "DaemonSet", f"{POWER_CONTROLLER}.env[A].value", "b", {}),
    ("agent.resources.powerController", RESOURCES, "DaemonSet", f"{POWER_CONTROLLER}.resources.requests.cpu", "2", {}),
    ("agent.resources.monitor", RESOURCES, "DaemonSet", f"{MONITOR}.resources.requests.cpu", "2", {}),
    ("agent.podAnnotations", LABELS, "DaemonSet", "spec.template.metadata.annotations.team", "trains", {}),
    ("agent.podLabels", LABELS, "DaemonSet", "spec.template.metadata.labels.team", "trains", {}),
]

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))


def leaves(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, inner in schema["properties"].items():
        here = f"{path}.{name}" if path else name
        if "properties" in inner:
            yield from leaves(inner, here)
        else:
            yield here, inner


def default_of(path: str) -> Any:
    value = DEFAULTS
    for name in path.split("."):
        value = value[name]
    return value


# Values that rename or remove what other rows look at.
ALONE = {
    "nameOverride",
    "fullnameOverride",
    "commonLabels",
    "operator.namespaces",
    "operator.replicas",
    "agent.namespace",
    "ui.enabled",
}


def is_alone(row: Row) -> bool:
    """Whether a value is rendered alone: it removes something, or its effect is at an index of a list."""
    path, _, _, place, expected, _ = row
    return path in ALONE or expected is ABSENT or bool(re.search(r"\[\d", place))


def exclude_each_other(row: Row, other: Row) -> bool:
    """Whether two values need different renderings: other values beside them, or one effect in the same place."""
    one_image = ".image." in row[0] and row[0].split(".")[:2] == other[0].split(".")[:2]
    return row[5] != other[5] or row[0] == other[0] or row[2:4] == other[2:4] or one_image


def renderings() -> list[list[Row]]:
    """The table in groups of values that one rendering shows; each call of Helm reads the whole chart."""
    groups: list[list[Row]] = []
    for row in TABLE:
        fitting = (
            group
            for group in groups
            if not is_alone(row) and not is_alone(group[0]) and not any(exclude_each_other(row, each) for each in group)
        )
        group = next(fitting, None)
        if group is None:
            groups.append([row])
        else:
            group.append(row)
    return groups


@pytest.mark.parametrize("rows", renderings(), ids=lambda rows: f"{rows[0][0]}-{len(rows)}")
def test_a_value_has_its_effect(
    rows: list[Row],
    rendered_without: Callable[[dict[str, Any]], list[dict[str, Any]]],
    helm: ClusterCommand,
    tmp_path: Path,
) -> None:
    # The definitions are most of the text; only their own row wants them.
    others = {"crds.install": False, **rows[0][5]}
    changed = {path: value for path, value, *_ in rows}
    with_values = render(helm, nested("global", {}, others | changed), tmp_path)
    for path, _, objects, place, expected, _ in rows:
        shown = effect(with_values, objects, place)
        assert shown == (ABSENT if expected is ABSENT and not place else [expected]), path
        if path != "database.postgresql.secretName":  # without it, this database is refused
            assert shown != effect(rendered_without(others), objects, place), path


def effect(rendered: list[dict[str, Any]], objects: str, place: str) -> Any:
    found = chosen(rendered, objects)
    if not found:
        return ABSENT
    shown = [at(item, place) for item in found] if place else [item["metadata"]["name"] for item in found]
    return shown[:1] if len({str(each) for each in shown}) == 1 else shown


@pytest.fixture(scope="module")
def rendered_without(
    helm: ClusterCommand, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[dict[str, Any]], list[dict[str, Any]]]:
    """Renders the default values and given others, each combination once."""
    rendered: dict[str, list[dict[str, Any]]] = {}

    def render_once(others: dict[str, Any]) -> list[dict[str, Any]]:
        key = json.dumps(others)
        if key not in rendered:
            rendered[key] = render(helm, nested("global", {}, others), tmp_path_factory.mktemp("values"))
        return rendered[key]

    return render_once


def test_the_table_has_every_value() -> None:
    assert {row[0] for row in TABLE} == {path for path, _ in leaves(SCHEMA)} - {"global"}


def test_every_value_has_a_default_and_a_description() -> None:
    for path, schema in leaves(SCHEMA):
        assert schema["description"].endswith("."), path
        if path != "global":
            default_of(path)


def test_the_chart_and_the_distribution_have_the_same_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = (CHART.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nversion = "{chart["appVersion"]}"\n' in project
    assert chart["version"] == chart["appVersion"]
