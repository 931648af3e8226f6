"""Name, kind, meaning and labels of the agent's metrics, from which docs/reference/metrics.md is generated."""

from dataclasses import dataclass

# Spelled as by DCGM's exporter, so that series can be joined.
GPU_LABELS = ("UUID", "modelName", "Hostname")
POD_LABELS = ("pod", "namespace", "container")


@dataclass(frozen=True)
class Metric:
    """A metric family. The Prometheus client adds ``_total`` to the name of a counter."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


CATALOGUE = (
    Metric("wattloop_gpu_energy_joules", "counter", "Energy by the GPU's own counter.", GPU_LABELS),
    Metric(
        "wattloop_gpu_energy_accounted_joules",
        "counter",
        "Energy since the ledger began: across counter resets, or from power if the GPU has no counter.",
        GPU_LABELS,
    ),
    Metric("wattloop_gpu_energy_uncertainty_joules", "gauge", "Uncertainty of the accounted energy.", GPU_LABELS),
    Metric("wattloop_gpu_energy_counter_resets", "counter", "Resets of the GPU's energy counter.", GPU_LABELS),
    Metric(
        "wattloop_pod_gpu_energy_joules",
        "counter",
        "Energy of a GPU while a running container has had it; shared: others used the GPU too, or could.",
        (*POD_LABELS, *GPU_LABELS, "shared"),
    ),
    Metric("wattloop_gpu_power_watts", "gauge", "Power draw.", GPU_LABELS),
    Metric("wattloop_gpu_power_limit_watts", "gauge", "Power limit that is set.", GPU_LABELS),
    Metric("wattloop_gpu_power_limit_enforced_watts", "gauge", "Power limit that the driver enforces.", GPU_LABELS),
    Metric("wattloop_gpu_power_limit_original_watts", "gauge", "Power limit restored after a lease.", GPU_LABELS),
    Metric("wattloop_gpu_power_limit_held_watts", "gauge", "Power limit held by a lease.", GPU_LABELS),
    Metric(
        "wattloop_gpu_power_limit_overridden",
        "gauge",
        "1: another program or a reset has changed a held limit; the agent reports this and does not change it back.",
        GPU_LABELS,
    ),
    Metric(
        "wattloop_gpu_policy_violation",
        "gauge",
        "1: a lease holds a setting outside of a GPUPowerPolicy that was tightened after the request; 0: within all.",
        ("setting", *GPU_LABELS),
    ),
    Metric("wattloop_gpu_graphics_clock_hertz", "gauge", "Graphics clock.", GPU_LABELS),
    Metric("wattloop_gpu_readable", "gauge", "0: the GPU did not answer one of the NVML queries.", GPU_LABELS),
    Metric(
        "wattloop_gpu_unidentified",
        "gauge",
        "1: a GPU was lost before its UUID was known, by the driver's index; the agent retries.",
        ("index", "problem", "Hostname"),
    ),
    Metric(
        "wattloop_node_energy_joules",
        "counter",
        "Energy of processors and memory (RAPL) since the agent started, if readable.",
        ("zone", "Hostname"),
    ),
    Metric("wattloop_agent_leases", "gauge", "Leases by the setting that they hold.", ("setting",)),
    Metric("wattloop_agent_leases_releasing", "gauge", "Released leases whose GPU could not be restored yet."),
    Metric("wattloop_agent_requests_rejected", "counter", "Rejected requests to the agent's socket.", ("reason",)),
    Metric("wattloop_agent_connections", "gauge", "Open connections to the agent's socket."),
    Metric("wattloop_agent_http_connections", "gauge", "Active connections to the metrics port."),
    Metric(
        "wattloop_agent_http_connections_dropped",
        "counter",
        "Connections to the metrics port that were rejected or ended early, by connection_limit or timeout.",
        ("reason",),
    ),
    Metric("wattloop_agent_connections_evicted", "counter", "Connections closed to make room for new ones."),
    Metric("wattloop_agent_log_lines_suppressed", "counter", "Log lines about callers beyond the rate limit."),
    Metric("wattloop_agent_sample_age_seconds", "gauge", "Age of the last GPU samples; NaN before the first."),
    Metric(
        "wattloop_agent_power_controller_age_seconds",
        "gauge",
        "Time since the power controller last answered; NaN before its first answer.",
    ),
    Metric("wattloop_agent_ledger_age_seconds", "gauge", "Time since the ledger was last written; NaN before that."),
    Metric("wattloop_agent_ledger_dropped_usages", "counter", "Usages of ended pods dropped before they were pushed."),
    Metric(
        "wattloop_agent_ledger_problem",
        "gauge",
        "1: the ledger can't be written or GPU assignments are unknown; the label gives the reason.",
        ("problem",),
    ),
    Metric(
        "wattloop_agent_push_age_seconds",
        "gauge",
        "Time since the operator accepted a complete push; NaN before the first; absent if pushes are disabled.",
    ),
    Metric("wattloop_agent_push_failures", "counter", "Pushes that failed or were rejected by the operator."),
    Metric("wattloop_agent_ready", "gauge", "1: the agent grants leases; 0: the label gives the reason.", ("state",)),
    Metric("wattloop_agent_warning", "gauge", "1: the label describes a problem that needs attention.", ("warning",)),
)
