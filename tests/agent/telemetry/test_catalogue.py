"""The names of the agent's metrics."""

from wattloop_agent.telemetry.catalogue import CATALOGUE


def test_every_name_is_unique_and_has_a_known_prefix() -> None:
    names = [metric.name for metric in CATALOGUE]
    assert len(set(names)) == len(names)
    prefixes = ("wattloop_gpu_", "wattloop_pod_", "wattloop_node_", "wattloop_agent_")
    assert all(name.startswith(prefixes) for name in names)
