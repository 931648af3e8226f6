"""The chart agrees with the rest of the repository."""

import argparse
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.chart.rendering import ABSENT, at, chosen, render
from support.control_plane.chart import REPOSITORY
from support.control_plane.commands import ClusterCommand
from wattloop_agent import agent_settings
from wattloop_agent.command_line import agent
from wattloop_operator import operator_settings
from wattloop_operator.command_line import operator, ui_server


def test_the_definitions_are_those_of_crds_and_are_kept(helm: ClusterCommand, tmp_path: Path) -> None:
    files = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in (REPOSITORY / "crds").glob("*.yaml")]
    rendered = chosen(render(helm, {}, tmp_path), "CustomResourceDefinition")
    for definition in rendered:
        assert definition["metadata"].pop("annotations")["helm.sh/resource-policy"] == "keep"
        definition["metadata"].pop("labels")
    assert sorted(rendered, key=str) == sorted(files, key=str)


@pytest.mark.parametrize(
    ("values", "database"),
    [
        ({}, "sqlite:////var/lib/wattloop/wattloop.db"),
        ({"reporting": {"tls": {"mode": "none"}}}, "sqlite:////var/lib/wattloop/wattloop.db"),
        ({"reporting": {"tls": {"mode": "secret", "secretName": "tls"}}}, "sqlite:////var/lib/wattloop/wattloop.db"),
        ({"database": {"type": "postgresql", "postgresql": {"secretName": "db"}}}, "postgresql://from-secret/x"),
    ],
)
def test_the_operator_accepts_the_charts_arguments_and_environment(
    values: dict[str, Any], database: str, helm: ClusterCommand, tmp_path: Path
) -> None:
    (deployment,) = chosen(render(helm, values, tmp_path), "Deployment")
    container = at(deployment, "spec.template.spec.containers[operator]")
    command, *options = container["args"]
    assert command == "operator"
    environment = {each["name"]: each.get("value", database) for each in container["env"]}

    parser = argparse.ArgumentParser()
    operator.COMMAND.configure(parser)
    settings = operator_settings.settings_from(parser.parse_args(options), environment)

    assert settings.database == database
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {
        "report": settings.report_bind.port,
        "metrics": settings.metrics_bind and settings.metrics_bind.port,
        "health": settings.health_bind and settings.health_bind.port,
    }
    assert settings.leader_election_namespace == "home"
    assert settings.agent_socket_folder == "/run/wattloop"
    assert settings.agent_service_account == "wattloop-agent/probe-wattloop-agent"
    assert (settings.report_certificate is not None) == settings.report_url.startswith("https://")


@pytest.mark.parametrize("hosts", [[], ["wattloop.example"]])
def test_the_server_of_the_page_accepts_the_charts_arguments(
    hosts: list[str], helm: ClusterCommand, tmp_path: Path
) -> None:
    values: dict[str, Any] = {"ui": {"enabled": True}, "operator": {"namespaces": ["a", "b"]}}
    if hosts:
        values["ui"] |= {"hosts": hosts, "tlsSecretName": "tls"}
        values["networkPolicy"] = {"uiFrom": [{"namespaceSelector": {}}]}
    objects = render(helm, values, tmp_path)
    (deployment,) = chosen(objects, "Deployment/ui")
    command, *options = at(deployment, "spec.template.spec.containers[ui].args")
    assert command == "ui-server"
    parser = argparse.ArgumentParser()
    ui_server.COMMAND.configure(parser)
    settings = ui_server.settings_from(parser.parse_args(options), {})
    assert (settings.hosts, settings.bind.host) == (tuple(hosts), "0.0.0.0" if hosts else "127.0.0.1")
    assert settings.namespaces == ("a", "b")
    assert (settings.certificate is not None) == bool(hosts) == bool(chosen(objects, "Service/ui"))


@pytest.mark.parametrize("part", ["power-controller", "monitor"])
def test_the_agent_accepts_the_charts_arguments_and_environment(
    part: str, helm: ClusterCommand, tmp_path: Path
) -> None:
    values = {"agent": {"environment": [{"name": "WATTLOOP_AGENT_MAXIMUM_POWER_LIMIT", "value": "300"}]}}
    (daemon_set,) = chosen(render(helm, values, tmp_path), "DaemonSet")
    container = at(daemon_set, f"spec.template.spec.containers[{part}]")
    # A field of the pod names its node.
    environment = {each["name"]: each.get("value", "node-1") for each in container["env"]}

    parser = argparse.ArgumentParser()
    agent.COMMAND.configure(parser)
    settings = agent_settings.settings_from(parser.parse_args(container["args"][1:]), environment)

    known = {agent_settings.PREFIX + setting.key.upper() for setting in agent_settings.SETTINGS}
    assert {name for name in environment if name.startswith("WATTLOOP_")} <= known
    assert settings.part == part
    assert (settings.identity == "pod") == (part == "monitor")
    assert settings.push_url == ("https://probe-wattloop-operator.home.svc:8080" if part == "monitor" else "")
    assert settings.node_name == ("node-1" if part == "monitor" else "")
    assert settings.maximum_power_limit == 300
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    used = [settings.power_controller_socket]
    if part == "power-controller":
        used += [settings.state_directory]
    else:
        monitor = [settings.socket, settings.monitor_state_directory]
        used += [*monitor, settings.push_token_file, settings.push_ca_file]
    for path in used:
        assert path is not None
        assert any(path.is_relative_to(folder) for folder in mounted)


def test_an_ended_attempt_waits_for_two_reports_of_the_agents() -> None:
    defaults = {each.key: each.default for each in (*operator_settings.SETTINGS, *agent_settings.SETTINGS)}
    timeout, interval = defaults["agent_report_timeout_seconds"], defaults["push_interval"]
    assert float(timeout) >= 2 * float(interval)


def test_only_the_power_controller_may_change_a_gpu(helm: ClusterCommand, tmp_path: Path) -> None:
    (daemon_set,) = chosen(render(helm, {}, tmp_path), "DaemonSet")
    power_controller = at(daemon_set, "spec.template.spec.containers[power-controller].securityContext")
    monitor = at(daemon_set, "spec.template.spec.containers[monitor].securityContext")
    assert power_controller["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    assert monitor["capabilities"] == {"drop": ["ALL"]}
    assert monitor["allowPrivilegeEscalation"] is False
    assert at(daemon_set, "spec.template.spec.automountServiceAccountToken") is False
    assert at(daemon_set, "spec.template.spec.containers[monitor].resources.limits").keys() == {"memory"}


def test_every_container_has_a_probe_of_its_life_and_readiness_means_something_else(
    helm: ClusterCommand, tmp_path: Path
) -> None:
    probes = {}
    for item in render(helm, {"ui": {"enabled": True}}, tmp_path):
        if item["kind"] in {"Deployment", "DaemonSet"}:
            for container in item["spec"]["template"]["spec"]["containers"]:
                handlers = (container.get(f"{kind}Probe", {}) for kind in ("liveness", "readiness"))
                probes[container["name"]] = [at(each, "httpGet.path") for each in handlers]
                assert "livenessProbe" in container
    # The readiness of the monitor is that of the power controller, which has no port.
    assert probes == {
        "operator": ["/healthz", "/readyz?exclude=database"],
        "ui": ["/healthz", "/readyz"],
        "monitor": ["/healthz", "/readyz"],
        "power-controller": [ABSENT, ABSENT],
    }


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
def test_no_pod_takes_a_gpu(kind: str, helm: ClusterCommand, tmp_path: Path) -> None:
    assert "nvidia.com/gpu:" not in yaml.safe_dump(
        [at(item, "spec.template.spec.containers") for item in chosen(render(helm, {}, tmp_path), kind)]
    )
