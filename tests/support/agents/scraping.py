"""Reads an agent's metrics as Prometheus does."""

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

Scraped = dict[str, list[tuple[dict[str, str], float]]]


def scraped(address: str) -> Scraped:
    """By family, each sample's labels and value."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {family.name: [(sample.labels, sample.value) for sample in family.samples] for family in families}
