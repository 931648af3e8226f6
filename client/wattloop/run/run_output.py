"""The model that a run begins with and the one that it publishes. Failures are logged, and end no training."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from wattloop.errors import OperationError
from wattloop.run.publishing import AttemptOutput
from wattloop.wire.training_messages import PublishedModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from wattloop.run.publishing import MarkerStore
    from wattloop.wire.environment import RunEnvironment

logger = logging.getLogger("wattloop")


class RunOutput:
    """The folder or URL of one attempt's files, with `spec.output`.

    Args:
        environment: The settings of the run; `output_directory` is not empty.
        marker_store: Writes the marker of the published model, if the output is a URL.
    """

    def __init__(self, environment: RunEnvironment, marker_store: MarkerStore | None) -> None:
        self._environment = environment
        self._files = AttemptOutput(environment.output_directory, environment.current_model, marker_store)

    @property
    def location(self) -> str:
        """Folder or URL for the files of this attempt."""
        return self._files.location

    @functools.cached_property
    def warm_start_location(self) -> str:
        """Folder or URL of the model to begin with; empty to begin without one. Found once."""
        if not self._environment.warm_start_directory:
            return ""
        try:
            return self._files.current()
        except OperationError as error:
            logger.warning("%s: begins without the current model: %s", self._environment.recurrence, error)
            return ""

    def create(self) -> None:
        """Create the folder."""
        try:
            self._files.create()
        except OperationError as error:
            logger.warning("%s: no model will be published: %s", self._environment.recurrence, error)

    def publish(self, facts: Mapping[str, object], keep_alive: Callable[[], None]) -> PublishedModel | None:
        """Make the files the current model, and return it; None if that failed.

        Args:
            facts: What the description of the model says besides job and recurrence.
            keep_alive: Called now and then while large files are read.
        """
        name = self._environment.recurrence
        try:
            digest = self._files.publish({"job": self._environment.job, "recurrence": name, **facts}, keep_alive)
        except OperationError as error:
            logger.warning("%s: not published: %s", name, error)
            return None
        logger.info("%s: published %s", name, self.location)
        return PublishedModel(self.location.rstrip("/").rpartition("/")[2], digest)
