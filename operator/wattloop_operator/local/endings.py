"""What a user should hear of attempts that ended in this run: why they failed, and what to do."""

from __future__ import annotations

from collections.abc import Callable

from wattloop_operator.api.result import Result
from wattloop_operator.engine.snapshot import Snapshot

# The table shows these; the others have a reason that it has no room for.
EXPECTED = frozenset({Result.REACHED, Result.STOPPED})
TEACHING = EXPECTED | {Result.EXHAUSTED, Result.DEADLINE_EXCEEDED}


class Endings:
    """Watches the attempts of a run as they end.

    Args:
        say: Shows one line.

    Attributes:
        results: How the attempts of this run ended, in no order; those of earlier runs are not among them.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._known: set[str] | None = None
        self.results: list[Result] = []

    def show(self, snapshot: Snapshot) -> None:
        """Tell of the attempts that have ended since the last call; at the first call nothing is new."""
        ended = {each.metadata.name: each for each in snapshot.recurrences if each.status.result is not None}
        for name in sorted(ended.keys() - (ended.keys() if self._known is None else self._known)):
            spec, status = ended[name].spec, ended[name].status
            if status.result is None:
                continue
            self.results.append(status.result)
            if status.result not in EXPECTED:
                self._say(f"run {spec.index}, try {spec.attempt} ({name}): {status.result}: {status.message}")
        self._known = (self._known or set()) | ended.keys()

    @property
    def taught(self) -> bool:
        """Whether any attempt of this run said something of its batch size; True where none was made."""
        return not self.results or any(result in TEACHING for result in self.results)
