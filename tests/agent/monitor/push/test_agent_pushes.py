"""A real agent pushes to the operator's real reporting API."""

import json
from pathlib import Path

from support.agents.agent_fixture import AgentFixture, until
from support.agents.scraping import metered_agent
from support.reporting.json_web_token import json_web_token
from support.reporting.node_api import NODE, running_node_api
from wattloop.wire.node_energy import GpuBounds, NodeAnswer

BOUNDS = (GpuBounds("rack", None, None, (100.0, 300.0)),)


def test_an_agent_pushes_to_its_operator_and_stores_the_bounds_of_the_answer(
    agent_fixture: AgentFixture, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(json_web_token("agent"))
    stored = agent_fixture.state / "monitor" / "bounds.json"
    with running_node_api(tmp_path, bounds=BOUNDS) as operator:
        settings = {"push_url": operator.url, "push_token_file": token, "push_interval": 0.1, "node_name": NODE}
        with metered_agent(agent_fixture, **settings) as agent:

            def of_pushes(what: str) -> float:
                return agent.scraped(f"wattloop_agent_push_{what}")[0][1]

            until(stored.exists, "the bounds on disk")
            until(lambda: of_pushes("age_seconds") < 5, "an accepted push")
            failures = of_pushes("failures")
            operator.server.tokens.clear()
            token.write_text("revoked")
            until(lambda: of_pushes("failures") > failures, "a rejected push")
    assert NodeAnswer.from_json(json.loads(stored.read_text())).bounds == BOUNDS
