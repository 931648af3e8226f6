"""Prometheus metrics: what is shown is collected when it is asked for, from what the reader knows anyway."""

from __future__ import annotations

import math
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from wattloop.commands.settings import Address
from wattloop.errors import CannotError
from wattloop_agent.reader.leases import LeaseKeeper
from wattloop_agent.reader.meter import GpuCondition
from wattloop_agent.reader.sampler import Sampler
from wattloop_agent.reader.server import Server
from wattloop_agent.setter.decisions import SAME_WATTS
from wattloop_agent.telemetry.catalogue import CATALOGUE

Sample = tuple[str, tuple[str, ...], float]


@dataclass(frozen=True)
class AgentState:
    """Where the metrics come from."""

    sampler: Sampler
    keeper: LeaseKeeper
    server: Server


class AgentCollector(Collector):
    """Turns the reader's state into metric families.

    Args:
        state: The reader's.
        hostname: For the label ``Hostname``.
    """

    def __init__(self, state: AgentState, hostname: str) -> None:
        self._state = state
        self._hostname = hostname

    def collect(self) -> Iterable[Metric]:
        """All families of the catalogue, also those without a sample."""
        samples: dict[str, list[tuple[tuple[str, ...], float]]] = {}
        for name, labels, value in [*self._gpu_samples(), *self._agent_samples()]:
            samples.setdefault(name, []).append((labels, value))
        for metric in CATALOGUE:
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=metric.labels)
            for labels, value in samples.get(metric.name, []):
                family.add_metric(labels, value)
            yield family

    def _gpu_samples(self) -> Iterable[Sample]:
        held = {lease["uuid"]: lease for lease in self._state.keeper.view.leases if lease["setting"] == "power_limit"}
        for gpu in self._state.sampler.conditions:
            labels = (gpu.uuid, gpu.name, self._hostname)
            for name, value in _values(gpu):
                if value is not None:
                    yield f"wattloop_gpu_{name}", labels, value
            lease = held.get(gpu.uuid)
            if lease is not None and lease["held"] is not None:
                yield "wattloop_gpu_power_limit_found_watts", labels, lease["found"]
                yield "wattloop_gpu_power_limit_held_watts", labels, lease["held"]
                overridden = (
                    gpu.power_limit_watts is not None and abs(gpu.power_limit_watts - lease["held"]) > SAME_WATTS
                )
                yield "wattloop_gpu_power_limit_overridden", labels, float(overridden)

    def _agent_samples(self) -> Iterable[Sample]:
        state = self._state
        view = state.keeper.view
        for setting, count in Counter(str(lease["setting"]) for lease in view.leases).items():
            yield "wattloop_agent_leases", (setting,), count
        yield "wattloop_agent_leases_releasing", (), sum(bool(lease["releasing"]) for lease in view.leases)
        for reason, count in state.server.refusals.items():
            yield "wattloop_agent_refusals", (str(reason),), count
        yield "wattloop_agent_connections", (), state.server.connections
        yield "wattloop_agent_reading_age_seconds", (), _age(state.sampler.taken_seconds)
        yield "wattloop_agent_setter_age_seconds", (), _age(view.heard_seconds)
        problem = view.state if view.state != "ready" else state.sampler.problem
        yield "wattloop_agent_ready", (problem or "ready",), float(view.state == "ready")
        yield "wattloop_agent_warning", (view.warning,), float(bool(view.warning))


def serve_metrics(address: Address, state: AgentState) -> Callable[[], None]:
    """Serve ``/metrics``; returns what stops it.

    Raises:
        CannotError: The address can't be listened at.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(AgentCollector(state, socket.gethostname()))
    try:
        server, thread = start_http_server(address.port, address.host, registry)
    except OSError as error:
        raise CannotError(f"metrics at {address.host}:{address.port}: {error.strerror or error}") from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


def _values(gpu: GpuCondition) -> Iterable[tuple[str, float | None]]:
    yield "energy_joules", None if gpu.energy_millijoules is None else gpu.energy_millijoules / 1000
    yield "power_watts", gpu.power_watts
    yield "power_limit_watts", gpu.power_limit_watts
    yield "power_limit_enforced_watts", gpu.enforced_power_limit_watts
    clock = gpu.graphics_clock_megahertz
    yield "graphics_clock_hertz", None if clock is None else clock * 1e6
    yield "readable", float(not gpu.problem)


def _age(then_seconds: float | None) -> float:
    return math.nan if then_seconds is None else time.monotonic() - then_seconds
