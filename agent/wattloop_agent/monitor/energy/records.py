"""A ledger's book as JSON types, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple
from typing import Any

from wattloop_agent.monitor.energy.account import GpuAccount
from wattloop_agent.monitor.energy.attribution import Assignment, UsageInterval
from wattloop_agent.monitor.energy.ledger import LedgerState
from wattloop_agent.monitor.energy.snapshot import EnergySnapshot


def state_to_record(book: LedgerState, boot_id: str) -> dict[str, Any]:
    """The book as it stands, with the boot that its clocks and counters are of."""
    return {
        "id": book.id,
        "boot": boot_id,
        "driver": book.driver,
        "observed_seconds": book.observed_seconds,
        "dropped": book.dropped,
        "accounts": [account.to_record() for account in book.accounts.values()],
        "known": {uuid: astuple(mark) for uuid, mark in book.known.items()},
        "spans": [_span_to_record(span) for span in book.spans.values()],
    }


def state_from_record(record: Mapping[str, Any], boot_id: str, now_seconds: float) -> LedgerState:
    """The book of a record, to go on with.

    Args:
        record: Of `state_to_record`.
        boot_id: Of this boot. In another than the record's, counters and clocks start anew and sums go on.
        now_seconds: The monotonic clock.

    Raises:
        KeyError: It is no such record.
        TypeError: Likewise.
        ValueError: Likewise.
    """
    ends = [account["last"][0] for account in record["accounts"] if account["last"] is not None]
    same_boot = record["boot"] == boot_id and max(ends, default=0.0) <= now_seconds
    accounts = [GpuAccount.from_record(account, same_boot=same_boot) for account in record["accounts"]]
    spans = [_span_from_record(span) for span in record["spans"]]
    return LedgerState(
        id=str(record["id"]),
        accounts={account.uuid: account for account in accounts},
        spans={span.assignment.key: span for span in spans},
        known={str(uuid): _mark(mark) for uuid, mark in record["known"].items()},
        observed_seconds=record["observed_seconds"] if same_boot else None,
        dropped=int(record["dropped"]),
        # A ledger of an agent that did not look at the driver says nothing of it.
        driver=record.get("driver") if same_boot else None,
        resumed=same_boot,
    )


def _span_to_record(span: UsageInterval) -> dict[str, Any]:
    return {
        **asdict(span.assignment),
        "start": astuple(span.start),
        "known": astuple(span.known),
        "ended": span.ended,
        "before": [span.before_millijoules, span.before_uncertainty_millijoules, span.first_seconds],
    }


def _span_from_record(record: Mapping[str, Any]) -> UsageInterval:
    pod_uid, namespace, pod, container, gpu = (
        str(record[name]) for name in ("pod_uid", "namespace", "pod", "container", "gpu")
    )
    before, uncertainty, first = record["before"]
    return UsageInterval(
        assignment=Assignment(pod_uid, namespace, pod, container, gpu, bool(record["shared"])),
        start=_mark(record["start"]),
        known=_mark(record["known"]),
        ended=bool(record["ended"]),
        before_millijoules=float(before),
        before_uncertainty_millijoules=float(uncertainty),
        first_seconds=float(first),
    )


def _mark(values: object) -> EnergySnapshot:
    if not isinstance(values, list):
        raise TypeError("a mark that is no list")
    return EnergySnapshot(*(float(value) for value in values))
