"""A real agent pushes to the operator's real reporting API."""

import json
import urllib.request
from pathlib import Path

from support.agents.agent_fixture import AgentFixture, until
from support.free_ports import free_port
from support.reporting.json_web_token import json_web_token
from support.reporting.node_api import NODE, running_node_api
from wattloop.wire.node_energy import GpuBounds, NodeAnswer

BOUNDS = (GpuBounds("rack", None, None, (100.0, 300.0)),)


def pushed(address: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        lines = [line.split() for line in answer.read().decode().splitlines()]
    return {line[0]: float(line[1]) for line in lines if line[0].startswith("wattloop_agent_push_")}


def test_an_agent_pushes_to_its_operator_and_stores_the_bounds_of_the_answer(
    agent_fixture: AgentFixture, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(json_web_token("agent"))
    metrics = f"127.0.0.1:{free_port()}"
    with running_node_api(tmp_path, bounds=BOUNDS) as operator:
        stored = tmp_path / "monitor" / "bounds.json"
        settings = {"metrics_bind": metrics, "push_url": operator.url, "push_token_file": token, "push_interval": 0.1}
        with agent_fixture.running(**settings, node_name=NODE, monitor_state_directory=tmp_path / "monitor"):
            until(stored.exists, "the bounds on disk")
            until(lambda: pushed(metrics)["wattloop_agent_push_age_seconds"] < 5, "an accepted push")
            failures = pushed(metrics)["wattloop_agent_push_failures_total"]
            operator.server.tokens.clear()
            token.write_text("revoked")
            until(lambda: pushed(metrics)["wattloop_agent_push_failures_total"] > failures, "a rejected push")
    assert NodeAnswer.from_json(json.loads(stored.read_text())).bounds == BOUNDS
