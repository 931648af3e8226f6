"""The steps of the fuzz target `plan-service`: lines that say what ranks, users and the operator's process do."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from support.pipelines.registrations import rank_registration
from support.pipelines.simulated_ranks import BLOCKING_WATTS, measurements_of
from wattloop.pipeline.plan_messages import (
    MAX_PIPELINE_RANKS,
    MAX_REASON_CHARACTERS,
    Directive,
    RankRegistration,
    RankReport,
    StragglerNotice,
)
from wattloop.wire.message_fields import MessageError
from wattloop_operator.reporting.pipeline_commits import Message, ReportOfRank

MAX_STEPS = 64
# Keys of a step `measured`: a factor of the times, the energy of every instruction, and how many clocks have any.
TIMES, ENERGY, CLOCKS = "factor", "energy", "clocks"
REGISTER, REPORT, MEASURED, STRAGGLER = "register", "report", "measured", "straggler"
MESSAGES = {REGISTER, REPORT, MEASURED, STRAGGLER}


@dataclass(frozen=True)
class Step:
    """One line of an input.

    Attributes:
        rank: The rank that it happens to.
        fields: Fields of the message that differ from those of a valid one, or arguments.
        joined: Whether the message is sent together with the one of the next line.
    """

    verb: str
    rank: int = 0
    fields: Mapping[str, Any] = field(default_factory=dict)
    joined: bool = False


def parse_steps(data: bytes) -> Iterator[Step]:
    """The steps of an input: ``verb rank {fields}`` on each line, ``+`` before one that the next line is sent with.

    Example:
        >>> [(step.verb, step.rank, step.fields) for step in parse_steps(b'+report 1 {"profiled": true}\\nrestart')]
        [('report', 1, {'profiled': True}), ('restart', 0, {})]
    """
    for line in data.split(b"\n")[:MAX_STEPS]:
        verb, _, rest = line.removeprefix(b"+").partition(b" ")
        number, _, text = rest.partition(b" ")
        try:
            fields = json.loads(text or b"{}")
        except (ValueError, RecursionError):
            # A message that is no JSON never reaches the service; the target `reporting` sends such ones.
            continue
        digits = number[:9]
        rank = int(digits) if digits.isdigit() else 0
        if isinstance(fields, dict):
            yield Step(verb.decode("latin-1"), rank % MAX_PIPELINE_RANKS, fields, line.startswith(b"+"))


@dataclass
class Ranks:
    """What the processes of the ranks know, so that a step needs to name only what is unusual.

    Attributes:
        registrations: The newest registration of each rank.
        received: The newest directive of each rank.
        reports: The number of reports of each rank.
    """

    registrations: dict[int, RankRegistration] = field(default_factory=dict)
    received: dict[int, Directive] = field(default_factory=dict)
    reports: dict[int, int] = field(default_factory=dict)

    def message(self, step: Step) -> Message | None:
        """The message of a step; None if the API refuses it before the service reads it."""
        try:
            match step.verb:
                case "register":
                    return self._registration(step)
                case "report" | "measured":
                    return ReportOfRank(step.rank, self._report(step))
                case "straggler":
                    return StragglerNotice.from_json({**StragglerNotice(2.5, "throttled").to_json(), **step.fields})
        except MessageError as error:
            _check_refusal(error)
        return None

    def receive(self, rank: int, directive: Directive) -> None:
        """Keep the answer to a message of a rank."""
        self.received[rank] = directive

    def _registration(self, step: Step) -> RankRegistration:
        usual = rank_registration(step.rank).to_json()
        found = RankRegistration.from_json({**usual, **step.fields})
        self.registrations[step.rank] = found
        self.received.pop(step.rank, None)
        return found

    def _report(self, step: Step) -> RankReport:
        registered = self.registrations.get(step.rank) or rank_registration(step.rank)
        directive = self.received.get(step.rank, Directive())
        sequence = self.reports[step.rank] = self.reports.get(step.rank, 0) + 1
        begun = directive.number if directive.first_iteration is not None else 0
        report = RankReport(registered.process, sequence, directive.number, 5 * sequence, begun, 5, 0.5)
        fields = dict(step.fields)
        times, joules = fields.pop(TIMES, 1.0), fields.pop(ENERGY, None)
        clocks = fields.pop(CLOCKS, 16)
        if step.verb == MEASURED and type(clocks) is int:
            measured = measurements_of(registered, registered.clocks_megahertz[: max(clocks, 0)][:16])
            report = replace(report, measurements=measured, blocking_watts=BLOCKING_WATTS, profiled=True)
        wire = report.to_json()
        for each in wire["measurements"]:
            each["time_seconds"] *= times if type(times) in {int, float} else 1.0
            each["energy_joules"] = each["energy_joules"] if joules is None else joules
        return RankReport.from_json({**wire, **fields})


def _check_refusal(error: MessageError) -> None:
    text = str(error)
    assert text.isprintable(), f"a refusal that is not printable: {text[:200]!r}"
    assert len(text) <= 4 * MAX_REASON_CHARACTERS, f"a refusal of {len(text)} characters"
