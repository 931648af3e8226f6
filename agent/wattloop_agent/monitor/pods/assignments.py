"""The GPUs of each container, for the energy ledger: the kubelet's list joined with pod uids."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping

from wattloop_agent.monitor.energy.attribution import Assignment, AssignmentObservation
from wattloop_agent.monitor.pods.device_ids import gpus_of
from wattloop_agent.monitor.pods.kubelet import PodName
from wattloop_agent.monitor.pods.pod_authenticator import PodAuthenticator
from wattloop_agent.monitor.pods.pod_liveness import PodLiveness
from wattloop_agent.refusals import Reason, RequestError


class PodAssignments:
    """Observes the assignments of GPUs to containers.

    Args:
        authenticator: Asks the kubelet, and knows the pods' processes.
    """

    def __init__(self, authenticator: PodAuthenticator) -> None:
        self._authenticator = authenticator
        self._processes = authenticator.processes
        self._pods = PodLiveness(self._processes)

    async def observe(self, known: Iterable[Assignment]) -> AssignmentObservation:
        """The current assignments.

        Args:
            known: The assignments so far.

        Raises:
            RequestError: The kubelet does not answer, or it is unknown which pods run.
        """
        answer = await self._authenticator.ask_kubelet()
        lists = [ids for containers in answer.devices.values() for ids in containers.values()]
        names = await self._authenticator.device_names(frozenset[str]().union(*lists))
        before = tuple(known)

        def joined() -> AssignmentObservation:
            uids = uids_by_name(answer.names, self._running, {each.pod_uid for each in before})
            devices = assignments_of(answer.devices, uids, names)
            running = self._pods.among({each.pod_uid for each in devices})
            listed = [each for each in devices if each.pod_uid in running]
            listed_keys = {each.key for each in devices}
            missing = [each for each in before if each.key not in listed_keys]
            assigned = (*listed, *unlisted(missing, listed, self._running))
            new = {each.pod_uid for each in assigned} - {each.pod_uid for each in before}
            first = self._processes.first_processes(new) if new else {}
            end = max(time.monotonic(), answer.requested_seconds)
            return AssignmentObservation(answer.requested_seconds, end, assigned, first)

        try:
            return await asyncio.to_thread(joined)
        except OSError as error:
            message = f"it is unknown which pods run: {error}; they keep their GPUs until it is known"
            raise RequestError(Reason.UNAVAILABLE, message) from error

    def _running(self, uids: set[str]) -> set[str]:
        return set(self._processes.process_by_pod(uids))


def uids_by_name(
    names: Mapping[str, PodName], running: Callable[[set[str]], set[str]], known: set[str]
) -> dict[PodName, list[str]]:
    """The uids of each pod name; several where pods of one name (deleted by force) still run.

    Args:
        names: By uid, the pods that have logs here, some of which may have ended.
        running: Which of these uids still have processes; called only for names with several uids.
        known: Uids that had a GPU until now.
    """
    by_name: dict[PodName, list[str]] = {}
    for uid, name in names.items():
        by_name.setdefault(name, []).append(uid)
    several = {uid for uids in by_name.values() if len(uids) > 1 for uid in uids}
    run = running(several) if several else set()
    for name, uids in by_name.items():
        if len(uids) > 1:
            # A pod that has not started yet is new; older ones had a GPU or have ended.
            by_name[name] = [uid for uid in uids if uid in run] or [uid for uid in uids if uid not in known] or uids
    return by_name


def assignments_of(
    devices: Mapping[PodName, Mapping[str, frozenset[str]]],
    uids: Mapping[PodName, list[str]],
    names: Mapping[str, str],
) -> list[Assignment]:
    """The assignments in the kubelet's list; a pod whose uid is unknown yet is in the next one.

    Args:
        devices: By pod and container, the ids of devices.
        uids: By pod, its uids.
        names: See `gpus_of`.
    """
    found = []
    for pod, containers in devices.items():
        for container, ids in containers.items():
            gpus = gpus_of(ids, names)
            for gpu in sorted(gpus.exclusive | gpus.shared):
                found += [
                    Assignment(uid, pod.namespace, pod.name, container, gpu, gpu in gpus.shared)
                    for uid in uids.get(pod, [])
                ]
    return found


def unlisted(
    known: Iterable[Assignment], listed: Iterable[Assignment], running: Callable[[set[str]], set[str]]
) -> list[Assignment]:
    """Unlisted assignments of pods that still run, if no other pod has the GPU.

    A kubelet that restarts lists nothing for a moment, so a pod has ended only when its processes
    have, too.
    """
    seen = list(listed)
    keys, taken = {each.key for each in seen}, {each.gpu for each in seen}
    missing = [each for each in known if each.key not in keys and each.gpu not in taken]
    run = running({each.pod_uid for each in missing}) if missing else set()
    return [each for each in missing if each.pod_uid in run]
