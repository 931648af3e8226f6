"""The GPUs of each container, for the energy ledger: the kubelet's list joined with pod uids.

Older kubelets also list completed pods, so whether a listed pod still runs is tracked (`PodLiveness`).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from wattloop.gpus.gpu_processes import text_of
from wattloop_agent.monitor.energy.attribution import Assignment, AssignmentObservation
from wattloop_agent.monitor.gpu_users import ListedGpus
from wattloop_agent.monitor.pods.kubelet import PodName, gpus_of
from wattloop_agent.monitor.pods.pod_authenticator import PodAuthenticator
from wattloop_agent.monitor.pods.pod_processes import PodProcesses
from wattloop_agent.refusals import Reason, RequestError

logger = logging.getLogger(__name__)

# A listed pod may have no process for so long: its volumes are mounted before its sandbox runs.
START_SECONDS = 60.0
# The shortest time between two scans of all processes of the node, which take milliseconds.
SEARCH_SECONDS = 10.0


class PodLiveness:
    """Remembers one process of each pod, so that checking a pod needs no scan of all processes."""

    def __init__(self, processes: PodProcesses, clock: Callable[[], float] = time.monotonic) -> None:
        self._processes = processes
        self._clock = clock
        self._pids: dict[str, int] = {}
        self._first_listed_seconds: dict[str, float] = {}
        self._started: set[str] = set()
        self._searched_seconds: dict[str, float] = {}
        self._any_found = False

    def among(self, pod_uids: set[str]) -> set[str]:
        """The pods among these that run or may still start; all others are forgotten. `OSError`: that is unknown."""
        now = self._clock()
        for by_uid in (self._pids, self._first_listed_seconds, self._searched_seconds):
            for uid in [uid for uid in by_uid if uid not in pod_uids]:
                del by_uid[uid]
        self._started &= pod_uids
        for uid in pod_uids:
            self._first_listed_seconds.setdefault(uid, now)
        self._search({uid for uid in pod_uids if not self._runs(uid)}, now)
        return {uid for uid in pod_uids if uid in self._pids or self._may_start(uid, now)}

    def have_ended(self, pod_uids: set[str], has_started: Callable[[str], bool]) -> bool:
        """Whether each of these, which `among` has left out, is known to have run; another one may not have begun yet.

        Args:
            pod_uids: The pods.
            has_started: Whether a container of a pod has started since the node did, maybe before this agent;
                `OSError`: it is unknown.
        """
        # A pod that only waits for its volumes, its network or its image has a GPU, too, but no container has started.
        # A pod with one keeps a process, at least that of its sandbox, until it ends; a reboot ends that as well, and
        # the pod starts again, so that what it did before says nothing.
        started = {uid for uid in pod_uids - self._started if has_started(uid)}
        has_ended = pod_uids <= self._started
        self._started |= started
        for uid in started:
            # It may have started since the last search, so the next call of `among` searches first.
            self._searched_seconds.pop(uid, None)
        return has_ended

    def _runs(self, uid: str) -> bool:
        pid = self._pids.get(uid)
        try:
            if pid is not None and self._processes.is_in(pid, uid):
                return True
        except OSError:
            # A failed read says nothing about the process.
            return True
        if self._pids.pop(uid, None) is not None:
            # The pod has just ended, or another of its processes runs: search at once.
            self._searched_seconds.pop(uid, None)
        return False

    def _search(self, missing: set[str], now: float) -> None:
        due = {uid for uid in missing if now - self._searched_seconds.get(uid, -SEARCH_SECONDS) >= SEARCH_SECONDS}
        if not due:
            return
        found = self._processes.process_by_pod(missing)
        self._searched_seconds |= dict.fromkeys(missing, now)
        self._pids |= found
        self._started |= found.keys()
        self._any_found = self._any_found or bool(found)

    def _may_start(self, uid: str, now: float) -> bool:
        if uid in self._started:
            return False
        # If no process of any pod was ever found, processes can't be seen from here, and their absence says nothing.
        return not self._any_found or now - self._first_listed_seconds[uid] < START_SECONDS


class PodAssignments:
    """Observes the assignments of GPUs to containers.

    Args:
        authenticator: Asks the kubelet, and knows the pods' processes.
        listed: Gives the driver's newest lists of the processes on each GPU; None if there are none.
    """

    def __init__(self, authenticator: PodAuthenticator, listed: Callable[[], ListedGpus | None] = lambda: None) -> None:
        self._authenticator = authenticator
        self._listed = listed
        self._observed_seconds: float | None = None
        # GPUs of which it was said that others use them.
        self._told: set[str] = set()
        self._processes = authenticator.processes
        self._pods = PodLiveness(self._processes)

    async def observe(self, known: Iterable[Assignment]) -> AssignmentObservation:
        """The current assignments, given those so far.

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
            listed_uids = {each.pod_uid for each in devices}
            running = self._pods.among(listed_uids)
            listed = [each for each in devices if each.pod_uid in running]
            listed_keys = {each.key for each in devices}
            missing = [each for each in before if each.key not in listed_keys]
            assigned = self._with_foreign_use(
                before, (*listed, *unlisted(missing, listed, self._running)), answer.requested_seconds
            )
            new = {each.pod_uid for each in assigned} - {each.pod_uid for each in before}
            first = self._processes.first_processes(new) if new else {}
            end = self._observed_seconds = max(time.monotonic(), answer.requested_seconds)
            is_complete = (
                not answer.has_other_devices
                and all_assigned(answer.devices, uids, names)
                and self._pods.have_ended(
                    listed_uids - running, lambda uid: self._authenticator.has_started(uid, answer.names[uid])
                )
            )
            return AssignmentObservation(answer.requested_seconds, end, assigned, first, is_complete)

        try:
            return await asyncio.to_thread(joined)
        except OSError as error:
            message = f"it is unknown which pods run: {error}; they keep their GPUs until it is known"
            raise RequestError(Reason.UNAVAILABLE, message) from error

    def _with_foreign_use(
        self, before: Sequence[Assignment], assigned: Sequence[Assignment], requested_seconds: float
    ) -> tuple[Assignment, ...]:
        """The assignments, `shared` if a process of no pod that has the GPU uses it.

        The kubelet does not know of a pod that sees all GPUs of its node, nor of a process outside of pods. Lists that
        were read between two observations count, for the pods that both have: no pod that came or left meanwhile is a
        stranger.
        """
        lists, since = self._listed(), self._observed_seconds
        if lists is None or since is None or not since <= lists.read_seconds <= requested_seconds:
            return tuple(assigned)
        pods: dict[str, set[str]] = {}
        for each in (*before, *assigned):
            pods.setdefault(each.gpu, set()).add(each.pod_uid)
        foreign = {
            gpu: self._processes.outside_of(pods[gpu], each.pids)
            for gpu, each in lists.lists.items()
            if gpu in pods and each.is_complete
        }
        used = {gpu for gpu, processes in foreign.items() if processes}
        for gpu in used - self._told:
            named = text_of([str(each) for each in foreign[gpu]])
            logger.warning(
                "the GPU of a pod is used by others: its energy is not the pod's alone",
                extra={"gpu": gpu, "processes": named},
            )
        self._told |= used
        had = {each.key for each in before}
        return tuple(replace(each, shared=each.shared or (each.gpu in used and each.key in had)) for each in assigned)

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
    devices: Mapping[PodName, Mapping[str, frozenset[str]]], uids: Mapping[PodName, list[str]], names: Mapping[str, str]
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


def all_assigned(
    devices: Mapping[PodName, Mapping[str, frozenset[str]]], uids: Mapping[PodName, list[str]], names: Mapping[str, str]
) -> bool:
    """Whether `assignments_of` has each listed device: its id names a GPU, and its pod has a uid."""
    return all(
        uids.get(pod) and not gpus_of(ids, names).unknown
        for pod, containers in devices.items()
        for ids in containers.values()
        if ids
    )


def unlisted(
    known: Iterable[Assignment], listed: Iterable[Assignment], running: Callable[[set[str]], set[str]]
) -> list[Assignment]:
    """Unlisted assignments of pods that still run, if no other pod has the GPU.

    A kubelet that restarts lists nothing for a moment, so a pod has ended only when its processes have, too.
    """
    seen = list(listed)
    keys, taken = {each.key for each in seen}, {each.gpu for each in seen}
    missing = [each for each in known if each.key not in keys and each.gpu not in taken]
    run = running({each.pod_uid for each in missing}) if missing else set()
    return [each for each in missing if each.pod_uid in run]
