"""Reads an agent's metrics as Prometheus does, and runs agents that serve them."""

import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from support.agents.agent_fixture import AgentFixture
from support.free_ports import free_port
from wattloop.gpus.agent import AgentConnection

Scraped = dict[str, list[tuple[dict[str, str], float]]]


def scraped(address: str) -> Scraped:
    """By family, each sample's labels and value."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {family.name: [(sample.labels, sample.value) for sample in family.samples] for family in families}


@dataclass
class MeteredAgent:
    """An agent that serves metrics, and a connection to it."""

    metrics: str
    process: subprocess.Popen[bytes]
    connection: AgentConnection

    def scraped(self, name: str) -> list[tuple[dict[str, str], float]]:
        return scraped(self.metrics).get(name, [])

    def by_uuid(self, name: str) -> dict[str, float]:
        return {labels["UUID"]: value for labels, value in self.scraped(name)}

    def readable(self) -> dict[str, float]:
        return self.by_uuid("wattloop_gpu_readable")


@contextmanager
def metered_agent(agent_fixture: AgentFixture, **settings: object) -> Iterator[MeteredAgent]:
    """Run an agent that samples its GPUs 20 times a second, with these settings too, and lives until the end."""
    metrics = f"127.0.0.1:{free_port()}"
    with (
        agent_fixture.running(metrics_bind=metrics, sample_interval=0.05, **settings) as process,
        AgentConnection(agent_fixture.socket) as connection,
    ):
        yield MeteredAgent(metrics, process, connection)
        assert process.poll() is None
