"""Runs every training pod of a namespace as soon as it exists, each to its target."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, watch
from kubernetes.client import ApiException

from support.control_plane.kubelet import Kubelet
from support.control_plane.training import TokenOfPod, Training
from support.control_plane.waiting import Object

_WATCH_SECONDS = 60
_NOT_FOUND, _CONFLICT = 404, 409


class PodRunner:
    """Runs the pods. Use it as a context manager; its end raises the error of a training.

    Args:
        train: Runs a training when its pod runs; by default it reaches its target.
    """

    def __init__(
        self,
        core: client.CoreV1Api,
        kubelet: Kubelet,
        token_of_pod: TokenOfPod,
        folder: Path,
        namespace: str,
        train: Callable[[Training], None] = Training.reach_target,
    ) -> None:
        self._core = core
        self._kubelet = kubelet
        self._token_of_pod = token_of_pod
        self._folder = folder
        self._namespace = namespace
        self._train = train
        self._pool = ThreadPoolExecutor(8)
        self._runs: dict[str, Future[None]] = {}
        self._watch: Any = watch.Watch()  # type: ignore[no-untyped-call]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch_pods, name="pod-runner", daemon=True)

    def __enter__(self) -> PodRunner:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopping.set()
        self._watch.stop()
        self._thread.join()
        self._pool.shutdown(cancel_futures=True)
        if kind is None:
            for run in self._runs.values():
                if not run.cancelled():
                    run.result()

    @property
    def pods(self) -> int:
        """Number of pods that it has run."""
        return sum(run.done() for run in self._runs.values())

    def _watch_pods(self) -> None:
        while not self._stopping.is_set():
            try:
                for event in self._watch.stream(
                    self._core.list_namespaced_pod,
                    self._namespace,
                    label_selector="wattloop.dev/recurrence",
                    timeout_seconds=_WATCH_SECONDS,
                ):
                    if self._stopping.is_set():
                        return
                    # The client yields None for a line that the server truncated when it closed the stream.
                    if event is not None:
                        self._start(self._core.api_client.sanitize_for_serialization(event["object"]))
            except (urllib3.exceptions.HTTPError, ApiException):
                self._stopping.wait(0.2)

    def _start(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if pod["status"].get("phase") == "Pending" and uid not in self._runs:
            self._runs[uid] = self._pool.submit(self._run, pod)

    def _run(self, pod: Object) -> None:
        try:
            running = self._kubelet.run(pod)
            self._train(Training(running, self._token_of_pod, self._folder))
            self._kubelet.succeed(running)
        except ApiException as error:
            # Its recurrence ended meanwhile.
            if error.status not in {_NOT_FOUND, _CONFLICT}:
                raise
