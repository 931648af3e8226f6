"""The agent's metrics: name, kind, meaning, labels. docs/metrics.md is generated from this list."""

from __future__ import annotations

from dataclasses import dataclass

# Spelt as DCGM's exporter spells them, so that series join.
GPU_LABELS = ("UUID", "modelName", "Hostname")


@dataclass(frozen=True)
class Metric:
    """One metric family; a counter's name is given without ``_total``, as Prometheus' clients want it."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


CATALOGUE = (
    Metric("wattloop_gpu_energy_joules", "counter", "Energy used, by the device's own counter.", GPU_LABELS),
    Metric("wattloop_gpu_power_watts", "gauge", "Power drawn.", GPU_LABELS),
    Metric("wattloop_gpu_power_limit_watts", "gauge", "Power limit that is set.", GPU_LABELS),
    Metric("wattloop_gpu_power_limit_enforced_watts", "gauge", "Power limit in force, whoever set it.", GPU_LABELS),
    Metric("wattloop_gpu_power_limit_found_watts", "gauge", "Power limit that a leased GPU goes back to.", GPU_LABELS),
    Metric("wattloop_gpu_power_limit_held_watts", "gauge", "Power limit held for an owner.", GPU_LABELS),
    Metric(
        "wattloop_gpu_power_limit_overridden",
        "gauge",
        "1: another actor has changed a limit that is held; it is reported, not fought.",
        GPU_LABELS,
    ),
    Metric("wattloop_gpu_graphics_clock_hertz", "gauge", "Graphics clock.", GPU_LABELS),
    Metric("wattloop_gpu_readable", "gauge", "0: the device did not answer one of the questions.", GPU_LABELS),
    Metric("wattloop_agent_leases", "gauge", "Leases, by what they hold.", ("setting",)),
    Metric("wattloop_agent_leases_releasing", "gauge", "Leases given up whose GPU could not be restored yet."),
    Metric("wattloop_agent_refusals", "counter", "Requests refused.", ("reason",)),
    Metric("wattloop_agent_connections", "gauge", "Connections open."),
    Metric("wattloop_agent_reading_age_seconds", "gauge", "Age of the readings shown; NaN: none was taken yet."),
    Metric("wattloop_agent_setter_age_seconds", "gauge", "Time since the setter answered; NaN: it never did."),
    Metric("wattloop_agent_ready", "gauge", "1: leases are given out; 0: the label says why not.", ("state",)),
    Metric("wattloop_agent_warning", "gauge", "1: a person should look at what the label says.", ("warning",)),
)
