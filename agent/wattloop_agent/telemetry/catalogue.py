"""The agent's metrics: name, kind, meaning, labels. docs/metrics.md is generated from this list."""

from __future__ import annotations

from dataclasses import dataclass

# Spelt as DCGM's exporter spells them, so that series join.
GPU_LABELS = ("UUID", "modelName", "Hostname")
POD_LABELS = ("pod", "namespace", "container")


@dataclass(frozen=True)
class Metric:
    """One metric family; a counter's name is given without ``_total``, as Prometheus' clients want it."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


CATALOGUE = (
    Metric("wattloop_gpu_energy_joules", "counter", "Energy used, by the device's own counter.", GPU_LABELS),
    Metric(
        "wattloop_gpu_energy_accounted_joules",
        "counter",
        "Energy used since the ledger began: over resets of the counter, or from power where there is no counter.",
        GPU_LABELS,
    ),
    Metric("wattloop_gpu_energy_uncertainty_joules", "gauge", "How far the accounted energy may be off.", GPU_LABELS),
    Metric("wattloop_gpu_energy_counter_resets", "counter", "How often the device's counter began anew.", GPU_LABELS),
    Metric(
        "wattloop_pod_gpu_energy_joules",
        "counter",
        "Energy of a GPU while a container that runs now had it; shared: others could use the GPU too.",
        (*POD_LABELS, *GPU_LABELS, "shared"),
    ),
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
    Metric(
        "wattloop_gpu_held_outside_policy",
        "gauge",
        "1: a setting is held outside of a GPUPowerPolicy that was tightened meanwhile; 0: it is within all.",
        ("setting", *GPU_LABELS),
    ),
    Metric("wattloop_gpu_graphics_clock_hertz", "gauge", "Graphics clock.", GPU_LABELS),
    Metric("wattloop_gpu_readable", "gauge", "0: the device did not answer one of the questions.", GPU_LABELS),
    Metric(
        "wattloop_gpu_unnamed",
        "gauge",
        "1: a GPU that was lost before it could be named, by the driver's index; it is looked for again and again.",
        ("index", "problem", "Hostname"),
    ),
    Metric(
        "wattloop_node_energy_joules",
        "counter",
        "Energy of processors and memory (RAPL) since the agent began, where it may be read.",
        ("zone", "Hostname"),
    ),
    Metric("wattloop_agent_leases", "gauge", "Leases, by what they hold.", ("setting",)),
    Metric("wattloop_agent_leases_releasing", "gauge", "Leases given up whose GPU could not be restored yet."),
    Metric("wattloop_agent_refusals", "counter", "Requests refused.", ("reason",)),
    Metric("wattloop_agent_connections", "gauge", "Connections open."),
    Metric("wattloop_agent_http_connections", "gauge", "Connections to the metrics' port that are being answered."),
    Metric(
        "wattloop_agent_http_connections_cut",
        "counter",
        "Connections to the metrics' port that were refused or ended early: crowded (beyond the bound) or slow.",
        ("reason",),
    ),
    Metric("wattloop_agent_connections_displaced", "counter", "Connections closed since others needed their place."),
    Metric("wattloop_agent_log_lines_suppressed", "counter", "Log lines about callers not logged: too many."),
    Metric("wattloop_agent_reading_age_seconds", "gauge", "Age of the readings shown; NaN: none was taken yet."),
    Metric(
        "wattloop_agent_power_controller_age_seconds",
        "gauge",
        "Time since the power controller answered; NaN: it never did.",
    ),
    Metric("wattloop_agent_ledger_age_seconds", "gauge", "Time since the ledger was written down; NaN: never."),
    Metric("wattloop_agent_ledger_dropped", "counter", "Holdings of ended pods that were dropped untold: too many."),
    Metric(
        "wattloop_agent_ledger_problem", "gauge", "1: the label says what keeps energy from its account.", ("problem",)
    ),
    Metric(
        "wattloop_agent_push_age_seconds",
        "gauge",
        "Time since the operator took in all that there was to tell; NaN: it never did; absent: nothing is pushed.",
    ),
    Metric("wattloop_agent_push_failures", "counter", "Pushes that the operator did not take in."),
    Metric("wattloop_agent_ready", "gauge", "1: leases are given out; 0: the label says why not.", ("state",)),
    Metric("wattloop_agent_warning", "gauge", "1: a person should look at what the label says.", ("warning",)),
)
