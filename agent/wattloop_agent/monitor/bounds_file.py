"""Stores the last policies of the operator, so that they survive a restart without it.

The file has the form of the operator's answer (`NodeAnswer`). On a node without an operator an
administrator can write it by hand.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from wattloop.wire.message_fields import MessageError
from wattloop.wire.node_energy import MAX_NODE_ANSWER_BYTES, GpuBounds, NodeAnswer
from wattloop_agent import refusals
from wattloop_agent.durable_file import read_at_most, write_durably
from wattloop_agent.monitor.policy_limits import PolicyLimits

logger = logging.getLogger(__name__)

NAME = "bounds.json"


class BoundsFile:
    """The policies of this node.

    An unreadable file closes the node: the administrator's limits are unknown, and a damaged disk
    must not lift them. The next `replace` opens it. Without a file, the node has not received
    policies yet, and only the devices' and the power controller's own ranges apply.

    Args:
        folder: The monitor's state folder.

    Attributes:
        problem: Why no request is admitted, or why the policies are not durable; empty: none.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._limits: PolicyLimits | None = PolicyLimits()
        self._durable: tuple[GpuBounds, ...] | None = None
        self.problem = ""
        self._read()

    def limits(self) -> PolicyLimits:
        """The policies in force.

        Raises:
            RequestError: `Reason.UNAVAILABLE`: they are unknown.
        """
        if self._limits is None:
            raise refusals.policies_unknown(self.problem)
        return self._limits

    def replace(self, bounds: Sequence[GpuBounds]) -> None:
        """Apply these policies and store them; if the disk fails they apply all the same."""
        received = tuple(bounds)
        if self._limits is None or self._limits.bounds != received:
            self._limits = PolicyLimits(received)
            logger.info("policies applied", extra={"policies": [each.policy for each in received]})
        if received != self._durable:
            self._write(received)

    def _read(self) -> None:
        try:
            data = read_at_most(self._path, MAX_NODE_ANSWER_BYTES)
            bounds = _decoded(data)
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, ValueError) as error:
            self._limits = None
            self.problem = f"{self._path}: {error}"
            logger.error("policies unknown; every request for a limit is refused", extra={"error": self.problem})  # noqa: TRY400
            return
        self._limits, self._durable = PolicyLimits(bounds), bounds

    def _write(self, bounds: tuple[GpuBounds, ...]) -> None:
        self._durable = None
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            content = json.dumps(NodeAnswer(bounds=bounds).to_json(), allow_nan=False, indent=1).encode()
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                write_durably(self._path, folder, content)
            finally:
                os.close(folder)
        except OSError as error:
            problem = f"policies apply, but are not stored for a restart: {error}"
            if problem != self.problem:
                logger.error("policies not written, retrying", extra={"error": problem})  # noqa: TRY400
            self.problem = problem
            return
        self._durable, self.problem = bounds, ""


def _decoded(data: bytes) -> tuple[GpuBounds, ...]:
    if len(data) > MAX_NODE_ANSWER_BYTES:
        raise ValueError(f"more than {MAX_NODE_ANSWER_BYTES} bytes")
    try:
        answer = NodeAnswer.from_json(json.loads(data))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if answer.bounds is None:
        raise MessageError('found no "bounds", expected a list')
    return answer.bounds
