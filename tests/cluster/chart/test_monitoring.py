"""Alerts and dashboards ask for metrics that there are, by labels that these have."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from support.chart.rendering import chosen, nested, render
from support.control_plane.certificates import CertificateAuthority
from support.control_plane.chart import CHART, REPOSITORY
from support.control_plane.commands import ClusterCommand
from wattloop_agent.telemetry.catalogue import CATALOGUE
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.http.certificates import ServingCertificate
from wattloop_operator.telemetry.operator_metrics import CertificateCollector, Metrics, StateCollector

DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))
# The labels that Prometheus adds to a pod's metrics unless the metric has them.
OF_THE_SCRAPE = frozenset({"namespace", "pod", "container", "job", "instance", "endpoint"})
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


def families_of(registry: CollectorRegistry) -> Iterator[tuple[Metric, frozenset[str]]]:
    """The operator's metrics with the labels that they are made with, from the registry that it serves."""
    unlabelled = {
        each._name: each
        for each in registry._collector_to_names
        if hasattr(each, "_labelnames")  # a counter without a child yet shows nothing of its labels
    }
    for family in registry.collect():
        own = unlabelled.get(family.name)
        yield family, frozenset(own._labelnames if own else ())


def labels_of_the_operators(registry: CollectorRegistry) -> dict[str, frozenset[str]]:
    """The operator's series and their labels."""
    found: dict[str, frozenset[str]] = {}
    for family, named in families_of(registry):
        for suffix in SUFFIXES[family.type]:
            name = family.name + suffix
            found[name] = named | {label for each in family.samples if each.name == name for label in each.labels}
    return found


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> CollectorRegistry:
    """All that the operator serves."""
    metrics = Metrics()
    job = RecurringTrainingJob.from_wire(
        {
            "metadata": {"name": "digits", "namespace": "team"},
            "spec": {
                "objective": {"target": {"metric": "accuracy", "threshold": "0.9"}},
                "batchSize": {"default": 64, "candidates": [64]},
                "template": {"spec": {"template": {"spec": {"containers": [{"name": "train"}]}}}},
            },
            "status": {
                "best": {"batchSize": 64},
                "totals": {"gpuEnergyJoules": "4000", "durationSeconds": "20"},
                "savings": [
                    {"name": name, "value": value, "low": low, "high": high, "unit": unit, "text": ""}
                    for name, value, low, high, unit in (
                        ("DefaultCost", "900", "800", "1000", "J"),
                        ("Cost", "-30", "-50", "-9", "percent"),
                        ("Energy", "-300", "-500", "-90", "J"),
                        ("Time", "-3", "-5", "-1", "s"),
                        ("LearningEnergy", "700", "600", "800", "J"),
                        ("LearningTime", "7", "6", "8", "s"),
                    )
                ],
            },
        }
    )
    metrics.registry.register(
        StateCollector(
            jobs=lambda: [job],
            queue_depth=lambda: 0,
            watch_ages_seconds=lambda: {"Job": 1.0},
            is_leader=lambda: True,
            is_database_up=lambda: True,
        )
    )
    authority = CertificateAuthority()
    chain, key = tmp_path_factory.mktemp("certificate") / "tls.crt", tmp_path_factory.mktemp("key") / "tls.key"
    pair = authority.server([], ["reports"])
    chain.write_bytes(pair.certificate)
    key.write_bytes(pair.private_key)
    metrics.registry.register(
        CertificateCollector(ServingCertificate(chain, key), authority.certificate.decode, "reports")
    )
    return metrics.registry


@pytest.fixture(scope="module")
def series(registry: CollectorRegistry) -> Mapping[str, frozenset[str]]:
    """Every series of operator and agent, with its labels."""
    agents = {
        metric.name + suffix: frozenset(metric.labels) for metric in CATALOGUE for suffix in SUFFIXES[metric.kind]
    }
    return labels_of_the_operators(registry) | agents | {"up": frozenset()}


def selectors_in(query: promql_parser.Expr) -> list[promql_parser.VectorSelector]:
    found: list[promql_parser.VectorSelector] = []

    def visit(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)

    promql_parser.walk(query, pre_visit=visit)
    return found


def troubles(text: str, series: Mapping[str, frozenset[str]]) -> list[str]:
    """The errors of a query: its grammar, its metrics, the labels that it selects and groups by."""
    try:
        query = promql_parser.parse(re.sub(r"\$__(range|rate_interval|interval)", "1h", text))
    except ValueError as error:
        return [f"{text}: {error}"]
    found: list[str] = []

    def known(selectors: list[promql_parser.VectorSelector]) -> set[str]:
        return {label for each in selectors for label in series.get(str(each.name), ())} | OF_THE_SCRAPE

    def visit(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            if node.name not in series:
                found.append(f"{text}: there is no {node.name}")
            else:
                used = {matcher.name for matcher in node.matchers.matchers}
                found.extend(f"{text}: {node.name} has no {label}" for label in used - known([node]))
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            used = set(node.modifier.labels)
            found.extend(f"{text}: nothing has {label}" for label in used - known(selectors_in(node.expr)))

    promql_parser.walk(query, pre_visit=visit)
    return found


def rules(helm: ClusterCommand, tmp_path: Path, values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    (rule,) = chosen(
        render(helm, nested("metrics.alerts.enabled", True, dict(values or {})), tmp_path), "PrometheusRule"
    )
    return [alert for group in rule["spec"]["groups"] for alert in group["rules"]]


def panels(path: Path) -> Iterator[dict[str, Any]]:
    for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
        if panel["type"] != "row":
            yield panel


def test_alerts_query_existing_metrics(
    series: Mapping[str, frozenset[str]], helm: ClusterCommand, tmp_path: Path
) -> None:
    alerts = rules(helm, tmp_path)
    assert len(alerts) > 10
    assert [trouble for alert in alerts for trouble in troubles(alert["expr"], series)] == []


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_query_existing_metrics(path: Path, series: Mapping[str, frozenset[str]]) -> None:
    queries = [target["expr"] for panel in panels(path) for target in panel["targets"]]
    variables = [
        found.group(1)
        for each in json.loads(path.read_text(encoding="utf-8"))["templating"]["list"]
        if (found := re.match(r"label_values\((.*), \w+\)$", each.get("definition", "")))
    ]
    assert len(queries) > 10
    assert len(variables) == 2
    assert [trouble for query in queries + variables for trouble in troubles(query, series)] == []


@pytest.mark.parametrize(
    ("query", "trouble"),
    [
        ("rate(wattloop_operator_is_leader[5m)", "unexpected character inside brackets"),
        ("sum(wattloop_gpu_energy_joules)", "there is no wattloop_gpu_energy_joules"),
        ("wattloop_gpu_power_watts{gpu='0'}", "has no gpu"),
        ("sum by (owner) (wattloop_gpu_power_watts)", "nothing has owner"),
    ],
)
def test_a_query_for_an_unknown_metric_is_detected(
    query: str, trouble: str, series: Mapping[str, frozenset[str]]
) -> None:
    (found,) = troubles(query, series)
    assert trouble in found


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_complete(path: Path) -> None:
    dashboard = json.loads(path.read_text(encoding="utf-8"))
    assert dashboard["uid"] == f"wattloop-{path.stem}"
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, f"{panel['title']} lies on another one"
        taken |= cells
    for panel in panels(path):
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        sources = {panel["datasource"]["uid"], *(target["datasource"]["uid"] for target in panel["targets"])}
        assert sources == {"${datasource}"}


def test_prometheus_reads_the_file_of_alerts_and_each_leads_to_its_remedy_in_the_docs() -> None:
    # The fields of rulefmt, by which promtool and Prometheus reject any other.
    groups = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text(encoding="utf-8"))
    assert groups.keys() == {"groups"}
    assert all(group.keys() == {"name", "rules"} for group in groups["groups"])
    alerts = [alert for group in groups["groups"] for alert in group["rules"]]
    for alert in alerts:
        assert alert.keys() | {"for"} == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+[mh]", alert.get("for", "1h"))
        assert alert["labels"]["severity"] in {"critical", "warning"}
        assert alert["annotations"].keys() == {"summary", "description", "runbook"}
    document = (REPOSITORY / "docs" / "monitoring.md").read_text(encoding="utf-8")
    headings = re.findall(r"^### (\w+)\n\n\S", document, re.MULTILINE)
    assert [f"docs/monitoring.md#{each.lower()}" for each in headings] == [a["annotations"]["runbook"] for a in alerts]
    assert headings == [alert["alert"] for alert in alerts]


def test_the_docs_have_every_metric_of_the_operator(registry: CollectorRegistry) -> None:
    rows = []
    for family, named in families_of(registry):
        name = family.name + ("_total" if family.type == "counter" else "")
        used = named | {label for each in family.samples for label in each.labels if label != "le"}
        labels = ", ".join(f"`{label}`" for label in sorted(used)) or "–"
        rows.append(f"| `{name}` | {family.type} | {labels} | {family.documentation} |")
    document = (REPOSITORY / "docs" / "reference" / "operator-metrics.md").read_text(encoding="utf-8")
    written = re.findall(r"^\| `wattloop_(?:operator|job)_.*$", document, re.MULTILINE)
    assert "\n".join(sorted(written)) == "\n".join(sorted(rows))


def test_an_agent_that_is_down_is_alerted_by_the_name_of_its_scrape(helm: ClusterCommand, tmp_path: Path) -> None:
    prometheus = {"networkPolicy.metricsFrom": [{"namespaceSelector": {}}], "metrics.podMonitor.enabled": True}
    others = {**prometheus, "agent.namespace": "gpus", "nameOverride": "loop"}
    (down,) = [alert for alert in rules(helm, tmp_path, others) if alert["alert"] == "WattloopAgentDown"]
    (monitor,) = chosen(render(helm, nested("global", {}, others), tmp_path), "PodMonitor/agent")
    assert "jobLabel" not in monitor["spec"], "so that the job is called by namespace and name"
    assert down["expr"] == f'up{{job="{monitor["metadata"]["namespace"]}/{monitor["metadata"]["name"]}"}} == 0'
