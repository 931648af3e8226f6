"""Prometheus metrics, collected from the monitor's state at each scrape."""

from __future__ import annotations

import itertools
import math
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from wattloop.commands.settings import Address
from wattloop.energy.gpu_reading import GpuReading
from wattloop_agent.agent_logs import PROCESS_LOG_LIMIT
from wattloop_agent.monitor.energy.recorder import EnergyRecorder, LedgerWriter
from wattloop_agent.monitor.gpu_sampler import GpuStatus, Sampler
from wattloop_agent.monitor.leases import LeaseTracker
from wattloop_agent.monitor.nvml_readings import NvmlReadings
from wattloop_agent.monitor.policy_limits import BoundsFile, PolicyViolations
from wattloop_agent.monitor.socket_server import SocketServer
from wattloop_agent.power_controller.lease_decisions import TOLERANCE_WATTS
from wattloop_agent.telemetry.bounded_server import CONNECTION_LIMIT, TIMEOUT, ConnectionLimiter
from wattloop_agent.telemetry.catalogue import CATALOGUE
from wattloop_agent.telemetry.serving import EnergyEvents, serve

if TYPE_CHECKING:
    from wattloop_agent.monitor.push.pusher import Pusher

Sample = tuple[str, tuple[str, ...], float]


@dataclass(frozen=True)
class AgentState:
    """The objects that the metrics are collected from."""

    sampler: Sampler
    readings: NvmlReadings
    lease_tracker: LeaseTracker
    violations: PolicyViolations
    server: SocketServer
    ledger_writer: LedgerWriter
    recorder: EnergyRecorder
    bounds: BoundsFile
    pusher: Pusher | None = None

    def not_ready(self) -> str:
        """Why the agent grants no leases; empty if it does."""
        state = self.lease_tracker.status.state
        return state if state != "ready" else self.sampler.problem


class AgentCollector(Collector):
    """Converts the monitor's state into metric families."""

    def __init__(self, state: AgentState, hostname: str, limiter: ConnectionLimiter) -> None:
        self._state = state
        self._limiter = limiter
        self._hostname = hostname

    def collect(self) -> Iterable[Metric]:
        """Return all families of the catalogue, including those without a sample."""
        samples: dict[str, list[tuple[tuple[str, ...], float]]] = {}
        parts = (self._gpu_samples(), self._lease_samples(), self._energy_samples(), self._agent_samples())
        for name, labels, value in itertools.chain(*parts):
            samples.setdefault(name, []).append((labels, value))
        for metric in CATALOGUE:
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=metric.labels)
            for labels, value in samples.get(metric.name, []):
                family.add_metric(labels, value)
            yield family

    def _gpu_samples(self) -> Iterable[Sample]:
        newest, counted = self._state.sampler.samples, self._state.sampler.counted
        for gpu in self._state.sampler.statuses:
            for name, value in _values(gpu, newest.get(gpu.uuid), counted.get(gpu.uuid)):
                if value is not None:
                    yield f"wattloop_gpu_{name}", (gpu.uuid, gpu.name, self._hostname), value
        for index, problem in self._state.readings.unnamed.items():
            yield "wattloop_gpu_unidentified", (str(index), problem, self._hostname), 1.0

    def _lease_samples(self) -> Iterable[Sample]:
        gpus = {gpu.uuid: gpu for gpu in self._state.sampler.statuses}
        violations = self._state.violations.found
        for lease in self._state.lease_tracker.status.leases:
            gpu = gpus.get(lease["uuid"])
            if gpu is None or lease["held"] is None:
                continue
            labels = (gpu.uuid, gpu.name, self._hostname)
            is_violation = (lease["uuid"], lease["setting"]) in violations
            yield "wattloop_gpu_policy_violation", (lease["setting"], *labels), float(is_violation)
            if lease["setting"] == "power_limit":
                yield "wattloop_gpu_power_limit_original_watts", labels, lease["found"]
                yield "wattloop_gpu_power_limit_held_watts", labels, lease["held"]
                limit = gpu.power_limit_watts
                overridden = limit is not None and abs(limit - lease["held"]) > TOLERANCE_WATTS
                yield "wattloop_gpu_power_limit_overridden", labels, float(overridden)

    def _energy_samples(self) -> Iterable[Sample]:
        ledger = self._state.ledger_writer.ledger
        products = {}
        for gpu in ledger.gpus():
            products[gpu.uuid] = gpu.product
            labels = (gpu.uuid, gpu.product, self._hostname)
            yield "wattloop_gpu_energy_accounted_joules", labels, gpu.energy_millijoules / 1000
            yield "wattloop_gpu_energy_uncertainty_joules", labels, gpu.uncertainty_millijoules / 1000
        for uuid, resets in ledger.resets().items():
            yield "wattloop_gpu_energy_counter_resets", (uuid, products.get(uuid, ""), self._hostname), resets
        for usage in ledger.usages():
            if not usage.ended:
                of_gpu = (usage.gpu, products.get(usage.gpu, ""), self._hostname)
                of_pod = (usage.pod, usage.namespace, usage.container)
                shared = str(usage.shared).lower()
                yield "wattloop_pod_gpu_energy_joules", (*of_pod, *of_gpu, shared), usage.energy_millijoules / 1000

        for zone, joules in self._state.recorder.rapl.joules().items():
            yield "wattloop_node_energy_joules", (zone, self._hostname), joules

    def _agent_samples(self) -> Iterable[Sample]:
        state = self._state
        status = state.lease_tracker.status
        for setting, count in Counter(str(lease["setting"]) for lease in status.leases).items():
            yield "wattloop_agent_leases", (setting,), count
        yield "wattloop_agent_leases_releasing", (), sum(bool(lease["releasing"]) for lease in status.leases)
        for reason, count in state.server.refusals.items():
            yield "wattloop_agent_requests_rejected", (str(reason),), count
        yield "wattloop_agent_connections", (), state.server.connections
        yield "wattloop_agent_http_connections", (), self._limiter.active
        for reason in (CONNECTION_LIMIT, TIMEOUT):
            yield "wattloop_agent_http_connections_dropped", (reason,), self._limiter.dropped[reason]
        yield "wattloop_agent_connections_evicted", (), state.server.slots.closed
        yield "wattloop_agent_log_lines_suppressed", (), PROCESS_LOG_LIMIT.suppressed
        yield "wattloop_agent_sample_age_seconds", (), _age(state.sampler.sampled_seconds)
        yield "wattloop_agent_power_controller_age_seconds", (), _age(status.updated_seconds)
        ledger_writer = state.ledger_writer
        yield "wattloop_agent_ledger_age_seconds", (), _age(ledger_writer.written_seconds)
        yield "wattloop_agent_ledger_dropped_usages", (), ledger_writer.ledger.dropped()
        problem = ledger_writer.problem or state.recorder.problem
        yield "wattloop_agent_ledger_problem", (problem,), float(bool(problem))
        if state.pusher is not None:
            push = state.pusher.state
            yield "wattloop_agent_push_age_seconds", (), _age(push.delivered_seconds)
            yield "wattloop_agent_push_failures", (), push.failures
        not_ready = state.not_ready()
        yield "wattloop_agent_ready", (not_ready or "ready",), float(not not_ready)
        warning = "; ".join(each for each in (status.warning, state.bounds.problem) if each)
        yield "wattloop_agent_warning", (warning,), float(bool(warning))


def serve_metrics(address: Address, state: AgentState) -> Callable[[], None]:
    """Serve metrics and energy events; return a function that stops the server.

    Raises:
        OperationError: Listening on the address failed.
    """
    registry = CollectorRegistry(auto_describe=False)
    limiter = ConnectionLimiter()
    registry.register(AgentCollector(state, socket.gethostname(), limiter))
    return serve(address, registry, EnergyEvents(state.ledger_writer.ledger), limiter, not_ready=state.not_ready)


def _values(
    gpu: GpuStatus, newest: GpuReading | None, counted: GpuReading | None
) -> Iterable[tuple[str, float | None]]:
    counter = None if counted is None else counted.energy_millijoules
    yield "energy_joules", None if counter is None else counter / 1000
    yield "power_watts", None if newest is None else newest.power_watts
    yield "power_limit_watts", gpu.power_limit_watts
    yield "power_limit_enforced_watts", gpu.enforced_power_limit_watts
    clock = gpu.graphics_clock_megahertz
    yield "graphics_clock_hertz", None if clock is None else clock * 1e6
    yield "readable", float(not gpu.problem and not (newest is not None and newest.problem))


def _age(then_seconds: float | None) -> float:
    return math.nan if then_seconds is None else time.monotonic() - then_seconds
