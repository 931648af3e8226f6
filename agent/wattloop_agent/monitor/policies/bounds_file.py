"""The guard rails that the operator told last, on disk: a restart without the operator keeps them.

The file has the form of the operator's answer (`NodeAnswer`), so that on a node without an operator
an administrator can write it by hand.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from wattloop.errors import OperationError
from wattloop.files.atomic_write import open_atomic
from wattloop.message_fields import MessageError
from wattloop.node_energy import MAX_NODE_ANSWER_BYTES, GpuBounds, NodeAnswer
from wattloop_agent.durable_file import read_bounded
from wattloop_agent.monitor.policies.limits import PolicyLimits
from wattloop_agent.request_error import Reason, RequestError

logger = logging.getLogger(__name__)

NAME = "bounds.json"


class BoundsFile:
    """The guard rails of this node.

    A file that can't be read closes the node: which limits the administrator allows is not known
    then, and a guard rail that a damaged disk takes away is none. The next `replace` opens it. No
    file at all is a node that was told nothing yet: only the devices' and the power controller's
    own ranges hold there.

    Args:
        folder: The monitor's state folder.

    Attributes:
        problem: Why nobody may ask now, or why the bounds are not durable; empty: all is well.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._limits: PolicyLimits | None = PolicyLimits()
        self._durable: tuple[GpuBounds, ...] | None = None
        self.problem = ""
        self._read()

    def limits(self) -> PolicyLimits:
        """What holds now.

        Raises:
            RequestError: `Reason.UNAVAILABLE`: it is not known.
        """
        if self._limits is None:
            raise RequestError(
                Reason.UNAVAILABLE,
                f"which limits GPUPowerPolicies allow is not known ({self.problem}); the operator tells them again, or "
                "an administrator mends or removes the file and starts the agent again",
            )
        return self._limits

    def replace(self, bounds: Sequence[GpuBounds]) -> None:
        """Make these the bounds from now on, and keep them on disk. Where the disk fails they hold all the same."""
        told = tuple(bounds)
        if self._limits is None or self._limits.bounds != told:
            self._limits = PolicyLimits(told)
            logger.info("guard rails", extra={"policies": [each.policy for each in told]})
        if told != self._durable:
            self._write(told)

    def _read(self) -> None:
        try:
            data = read_bounded(self._path, MAX_NODE_ANSWER_BYTES)
            bounds = _decoded(data)
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, ValueError) as error:
            self._limits = None
            self.problem = f"{self._path}: {error}"
            logger.error("guard rails not known: no limit is held for anybody", extra={"told": self.problem})  # noqa: TRY400
            return
        self._limits, self._durable = PolicyLimits(bounds), bounds

    def _write(self, bounds: tuple[GpuBounds, ...]) -> None:
        self._durable = None
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open_atomic(self._path) as stream:
                json.dump(NodeAnswer(bounds=bounds).to_json(), stream, allow_nan=False, indent=1)
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except (OSError, OperationError) as error:
            problem = f"guard rails hold, but are not kept over a restart: {error}"
            if problem != self.problem:
                logger.error("guard rails not written, trying again", extra={"told": problem})  # noqa: TRY400
            self.problem = problem
            return
        self._durable, self.problem = bounds, ""


def _decoded(data: bytes) -> tuple[GpuBounds, ...]:
    if len(data) > MAX_NODE_ANSWER_BYTES:
        raise ValueError(f"more than {MAX_NODE_ANSWER_BYTES} bytes")
    try:
        answer = NodeAnswer.from_json(json.loads(data))
    except RecursionError as error:
        raise ValueError("too deep") from error
    if answer.bounds is None:
        raise MessageError('found no "bounds", expected a list')
    return answer.bounds
