"""What a user should hear of attempts that ended in this run: why they failed, and what to do."""

from __future__ import annotations

from collections.abc import Callable

from wattloop_operator.api.attempt import Result
from wattloop_operator.domain.snapshot import Snapshot

# The live table shows these; the others have a reason that it has no room for.
EXPECTED = frozenset({Result.REACHED, Result.STOPPED})
TEACHING = EXPECTED | {Result.EXHAUSTED, Result.DEADLINE_EXCEEDED}


class AttemptReporter:
    """Watches the attempts of a run as they end.

    Args:
        say: Shows one line.
        table: Whether a live table shows what goes well; without one that is told, too.

    Attributes:
        results: How the attempts of this run ended, in no order; those of earlier runs are not among them.
    """

    def __init__(self, say: Callable[[str], None], *, table: bool = True) -> None:
        self._say = say
        self._table = table
        self._known: set[str] | None = None
        self.results: list[Result] = []
        self._taught = False

    def show(self, snapshot: Snapshot) -> None:
        """Tell of the attempts that have ended since the last call; at the first call nothing is new."""
        ended = {each.metadata.name: each for each in snapshot.recurrences if each.status.result is not None}
        for name in sorted(ended.keys() - (ended.keys() if self._known is None else self._known)):
            spec, status = ended[name].spec, ended[name].status
            if status.result is None:
                continue
            self.results.append(status.result)
            has_metric = status.progress is not None and status.progress.metric is not None
            self._taught |= status.result in TEACHING and has_metric
            if status.result not in EXPECTED or not self._table:
                self._say(f"run {spec.index}, try {spec.attempt} ({name}): {status.result}: {status.message}")
        self._known = (self._known or set()) | ended.keys()

    @property
    def taught(self) -> bool:
        """Whether any attempt of this run said something of its batch size; True where none was made."""
        return not self.results or self._taught
