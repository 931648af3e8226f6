"""Merges the reports that training processes left in the termination messages of their containers.

A process leaves there what it could not deliver, as while the operator or its database was away. Each text is merged
once by a process of the operator; merged again by the next one, it changes nothing, because reports are cumulative.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from wattloop.wire.message_fields import MessageError
from wattloop.wire.training_messages import Report
from wattloop.wire.undelivered_reports import unpacked
from wattloop_operator.cluster.api import ClusterApi, RejectedError
from wattloop_operator.cluster.auth.authorizers import has_report_token, running_pod
from wattloop_operator.domain.snapshot import UndeliveredReports, WorkloadState
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.driver import StaleSnapshotError
from wattloop_operator.reporting.interfaces import ProgressTooLargeError, UnknownRecurrenceError

logger = logging.getLogger(__name__)


class Receive(Protocol):
    """Merges reports of a pod; see `ReportService.receive_undelivered`."""

    def __call__(self, namespace: str, name: str, reports: Sequence[Report], pod_uid: str, *, superseded: bool) -> None:
        """Merge them."""


class UndeliveredReportsReader:
    """Reads the texts of each job once."""

    def __init__(self, api: ClusterApi, receive: Receive) -> None:
        self._api = api
        self._receive = receive
        # By the uid of a job.
        self._read: dict[str, set[UndeliveredReports]] = {}

    def unread(self, job_uid: str, workloads: Mapping[str, WorkloadState]) -> dict[str, WorkloadState]:
        """The workloads of a job, with the texts that were not read yet."""
        present = {each for workload in workloads.values() for each in workload.undelivered}
        read = self._read.get(job_uid, set()) & present
        if read:
            self._read[job_uid] = read
        else:
            self.forget(job_uid)
        return {
            name: replace(each, undelivered=tuple(text for text in each.undelivered if text not in read))
            if each.undelivered
            else each
            for name, each in workloads.items()
        }

    def read(self, recurrence: TrainingAttempt, texts: Sequence[UndeliveredReports]) -> None:
        """Merge the reports in texts of a recurrence.

        Raises:
            OperationError: They cannot be merged now.
            StaleSnapshotError: The recurrence does not exist any more.
        """
        for text in texts:
            try:
                self._merge(recurrence, text)
            except (MessageError, RejectedError, ProgressTooLargeError) as error:
                _log_ignored(recurrence, text, str(error))
            except UnknownRecurrenceError as error:
                raise StaleSnapshotError(str(error)) from error
            self._read.setdefault(recurrence.spec.job_ref.uid, set()).add(text)

    def forget(self, job_uid: str) -> None:
        """Drop what is known of a deleted job."""
        self._read.pop(job_uid, None)

    def _merge(self, recurrence: TrainingAttempt, text: UndeliveredReports) -> None:
        key = (recurrence.metadata.namespace, recurrence.metadata.name)
        reports = unpacked(text.packed)
        pod = running_pod(self._api, key, text.pod, text.pod_uid)
        if pod is None or not has_report_token(pod):
            _log_ignored(recurrence, text, "the pod is gone or may not report for it")
            return
        self._receive(*key, reports, text.pod_uid, superseded=text.superseded)
        logger.info("%s/%s: merged %d reports that pod %s left", *key, len(reports), text.pod)


def _log_ignored(recurrence: TrainingAttempt, text: UndeliveredReports, why: str) -> None:
    logger.warning("%s: the reports that pod %s left are ignored: %s", recurrence.metadata.full_name, text.pod, why)
