"""The seam to the GPUs, as the power controller sees them: what is set, what is accepted, set it."""

from __future__ import annotations

from typing import Protocol

from wattloop_agent.power_controller.decisions import Allowed
from wattloop_agent.power_controller.lease import Setting


class Devices(Protocol):
    """GPUs by uuid. Every method raises `RequestError` with what the device (or the driver) says."""

    def allowed(self, gpu: str, setting: Setting) -> Allowed:
        """What the device accepts."""

    def current(self, gpu: str, setting: Setting) -> float | None:
        """What is set; None for clocks, whose lock can't be read."""

    def enforced(self, gpu: str, setting: Setting) -> float | None:
        """What is in force, whoever set it; None where the device does not say."""

    def put(self, gpu: str, setting: Setting, value: float | None) -> None:
        """Set it; None takes a clock's lock away."""
