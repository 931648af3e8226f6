"""Which container of which pod has which GPU, for the energy ledger: the kubelet's list joined with the pods' uids."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping

from wattloop_agent.monitor.energy.attribution import Assignment, Observation
from wattloop_agent.monitor.pods.device_ids import gpus_of
from wattloop_agent.monitor.pods.kubelet import PodName
from wattloop_agent.monitor.pods.pod_authenticator import PodAuthenticator
from wattloop_agent.monitor.pods.pod_liveness import PodLiveness
from wattloop_agent.request_error import Reason, RequestError


class PodAssignments:
    """Looks at who has which GPU.

    Args:
        authenticator: Asks the kubelet, and knows the pods' processes.
    """

    def __init__(self, authenticator: PodAuthenticator) -> None:
        self._authenticator = authenticator
        self._pods = PodLiveness(authenticator)

    async def observe(self, known: Iterable[Assignment]) -> Observation:
        """Who has which GPU now.

        Args:
            known: Who had which until now.

        Raises:
            RequestError: The kubelet does not say, or which pods run is not known.
        """
        view = await self._authenticator.ask_kubelet()
        lists = [ids for containers in view.devices.values() for ids in containers.values()]
        names = await self._authenticator.device_names(frozenset[str]().union(*lists))
        had = tuple(known)

        def joined() -> Observation:
            uids = uids_by_name(view.names, self._living, {each.pod_uid for each in had})
            devices = assignments_of(view.devices, uids, names)
            running = self._pods.among({each.pod_uid for each in devices})
            listed = [each for each in devices if each.pod_uid in running]
            still = {each.key for each in devices}
            missing = [each for each in had if each.key not in still]
            assigned = (*listed, *unlisted(missing, listed, self._living))
            new = {each.pod_uid for each in assigned} - {each.pod_uid for each in had}
            first = self._authenticator.first_processes(new) if new else {}
            return Observation(view.asked_seconds, max(time.monotonic(), view.asked_seconds), assigned, first)

        try:
            return await asyncio.to_thread(joined)
        except OSError as error:
            told = f"which pods run is not known: {error}; their GPUs stay theirs until it is"
            raise RequestError(Reason.UNAVAILABLE, told) from error

    def _living(self, uids: set[str]) -> set[str]:
        return set(self._authenticator.process_by_pod(uids))


def uids_by_name(
    names: Mapping[str, PodName], running: Callable[[set[str]], set[str]], known: set[str]
) -> dict[PodName, list[str]]:
    """Which uids a pod's name stands for: one, or several where pods of one name (deleted by force) still run.

    Args:
        names: By uid, the pods that have logs here, perhaps of one that is gone.
        running: Which of these uids still have processes; asked only where names alone do not tell.
        known: Uids that had a GPU until now.
    """
    by_name: dict[PodName, list[str]] = {}
    for uid, name in names.items():
        by_name.setdefault(name, []).append(uid)
    several = {uid for uids in by_name.values() if len(uids) > 1 for uid in uids}
    run = running(several) if several else set()
    for name, uids in by_name.items():
        if len(uids) > 1:
            # One that has not started yet is new: those of before had a GPU, or have ended.
            by_name[name] = [uid for uid in uids if uid in run] or [uid for uid in uids if uid not in known] or uids
    return by_name


def assignments_of(
    devices: Mapping[PodName, Mapping[str, frozenset[str]]],
    uids: Mapping[PodName, list[str]],
    names: Mapping[str, str],
) -> list[Assignment]:
    """Who has which GPU, by the kubelet's list; a pod whose uid is not known yet is in the next one.

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
    """Those that the kubelet lists no more while their pods still run, and nobody else has the GPU.

    A kubelet that starts again lists nothing for a moment: a pod has ended when its processes have,
    too.
    """
    seen = list(listed)
    keys, taken = {each.key for each in seen}, {each.gpu for each in seen}
    missing = [each for each in known if each.key not in keys and each.gpu not in taken]
    run = running({each.pod_uid for each in missing}) if missing else set()
    return [each for each in missing if each.pod_uid in run]
