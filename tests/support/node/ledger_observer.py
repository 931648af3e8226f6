"""The pods that an agent's ledger on disk has held, observed while agents restart."""

import contextlib
import json
from pathlib import Path

from support.node.polling import Poller


class LedgerObserver(Poller):
    """A context that looks at the ledger's file again and again.

    A missed poll can miss a pod, but everything in the file was durable.

    Attributes:
        pod_uids: Of all pods that were in it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(every_seconds=0.25)
        self.pod_uids: set[str] = set()
        self._path = path

    def poll(self) -> None:
        """Adds the pods that are in it now."""
        # Not there before the first pod.
        with contextlib.suppress(FileNotFoundError):
            ledger = json.loads(self._path.read_text(encoding="utf-8"))["ledger"]
            self.pod_uids |= {interval["pod_uid"] for interval in ledger["intervals"]}
