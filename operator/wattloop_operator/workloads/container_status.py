"""The termination messages in a pod's status: the end of an output, and reports that no operator received.

torchrun lists each rank of its machine that had failed when it noticed, with its exit code, and a root cause. That
is the earliest in whole seconds, so it may be a rank that only lost its connection to the one that was killed.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping
from typing import Any

from wattloop.wire.undelivered_reports import split_message
from wattloop_operator.domain.snapshot import UndeliveredReports

Pod = Mapping[str, Any]


def container_statuses(pod: Pod) -> list[Mapping[str, Any]]:
    """The states of a pod's containers, without init containers."""
    return list((pod.get("status") or {}).get("containerStatuses") or ())


def output_of(terminated: Mapping[str, Any]) -> str:
    r"""The termination message of a container that has ended: mostly the end of its log.

    Example:
        >>> from wattloop.wire.undelivered_reports import joined_message
        >>> output_of({"exitCode": 1, "message": joined_message("ValueError: x\n", "c-jH#")})
        'ValueError: x\n'
    """
    return split_message(_message(terminated))[0]


def termination_message(pod: Pod, container: str) -> str:
    """What a container that has ended wrote into its termination log; the kubelet bounds it to 4 KiB."""
    states = (each.get("state") or {} for each in container_statuses(pod) if each.get("name") == container)
    return next((output_of(state.get("terminated") or {}) for state in states), "")


def killed_ranks(pods: Iterable[Pod]) -> tuple[int, ...]:
    """The ranks that were killed, by torchrun's last output where a container's termination message has it."""
    ended = ((each.get("state") or {}).get("terminated") or {} for pod in pods for each in container_statuses(pod))
    found = (killed_ranks_in(output_of(each)) for each in ended if each.get("exitCode"))
    return tuple(sorted({rank for ranks in found for rank in ranks}))


def undelivered_reports(pods: Iterable[Pod]) -> tuple[UndeliveredReports, ...]:
    """What processes of containers that have ended left for the operator, also of those that were started again."""
    ended, latest_start = [], dict[str, str]()
    for pod in pods:
        for status in container_statuses(pod):
            name = str(status.get("name"))
            for kind in ("lastState", "state"):
                state = next(iter((status.get(kind) or {}).values()), None) or {}
                # The API's times compare as texts.
                start = str(state.get("startedAt") or "")
                latest_start[name] = max(latest_start.get(name, ""), start)
                packed = split_message(_message(state))[1]
                if packed:
                    ended.append((pod["metadata"], name, kind, start, str(state.get("finishedAt") or ""), packed))
    return tuple(
        UndeliveredReports(
            str(metadata.get("name")),
            str(metadata.get("uid")),
            packed,
            superseded=kind == "lastState" or (latest_start[name] > start and latest_start[name] >= end),
        )
        for metadata, name, kind, start, end, packed in ended
    )


def _message(terminated: Mapping[str, Any]) -> str:
    return str(terminated.get("message") or "")


MAX_OUTPUT_CHARACTERS = 64 * 1024
_FAILURE = re.compile(
    r"^ {0,8}rank {1,8}: (\d{1,7}) \(local_rank: \d{1,7}\)\s{1,16}exitcode {1,8}: -(\d{1,3}) ", re.MULTILINE | re.ASCII
)
# How torchrun ends the other ranks. NCCL's watchdog aborts a rank that waits for a lost one.
_CONSEQUENCES = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


def killed_ranks_in(output: str) -> tuple[int, ...]:
    r"""The ranks that a signal ended, by the end of the output of torchrun; empty if it names none.

    Args:
        output: The end of the output.

    Example:
        >>> killed_ranks_in("  rank      : 2 (local_rank: 2)\n  exitcode  : -9 (pid: 7)\n  error_file: <N/A>")
        (2,)
        >>> killed_ranks_in("  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 6)\\n")
        ()
    """
    found = [(int(rank), int(number)) for rank, number in _FAILURE.findall(output[-MAX_OUTPUT_CHARACTERS:])]
    killed = [(rank, number) for rank, number in found if number not in _CONSEQUENCES]
    others = [(rank, number) for rank, number in killed if number != signal.SIGABRT]
    return tuple(sorted({rank for rank, _ in others or killed}))
