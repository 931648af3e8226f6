"""A plan service over HTTP that gives every rank one directive, in two phases."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler

from support.http_stand_in import http_server, json_body, respond
from wattloop.pipeline.plan_messages import Directive, RankRegistration, RankReport, StragglerNotice

# The client's own waits between messages are bounded by this.
REPORT_SECONDS = 0.05


@dataclass
class PlanServer:
    """What it received, and what it answers.

    Attributes:
        ranks: Number of ranks that must acknowledge a directive.
        margin: How many iterations after the last acknowledgement a directive begins.
        goal: The directive; its `first_iteration` is set once all ranks have acknowledged it.
    """

    ranks: int = 1
    margin: int = 3
    url: str = ""
    goal: Directive = field(default_factory=Directive)
    registrations: dict[str, RankRegistration] = field(default_factory=dict)
    reports: list[RankReport] = field(default_factory=list)
    notices: list[StragglerNotice] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def give(self, directive: Directive) -> None:
        """Give the ranks another directive."""
        with self.lock:
            self.goal = replace(directive, number=self.goal.number + 1, report_seconds=REPORT_SECONDS)

    def restart(self) -> None:
        """Lose the registrations."""
        with self.lock:
            self.registrations.clear()

    def answer(self, method: str, path: str, body: object) -> dict[str, object]:
        """The answer to a request."""
        with self.lock:
            if path.endswith("/straggler"):
                self.notices.append(StragglerNotice.from_json(body))
                return {}
            if method == "PUT":
                registration = RankRegistration.from_json(body)
                self.registrations[registration.process] = registration
            else:
                report = RankReport.from_json(body)
                if report.process not in self.registrations:
                    return Directive(known=False).to_json()
                self.reports.append(report)
                self._set_first_iteration()
            return replace(self.goal, report_seconds=REPORT_SECONDS).to_json()

    def _set_first_iteration(self) -> None:
        newest = {report.process: report for report in self.reports}
        acknowledged = [each for each in newest.values() if each.directive >= self.goal.number > 0]
        if self.goal.first_iteration is None and len(acknowledged) == self.ranks:
            first = max(each.iterations for each in acknowledged) + self.margin
            self.goal = replace(self.goal, first_iteration=first)


@contextlib.contextmanager
def running_plan_server() -> Iterator[PlanServer]:
    """Serves during the block."""
    server = PlanServer()

    def behaviour(request: BaseHTTPRequestHandler) -> None:
        server.tokens.add(request.headers["Authorization"])
        respond(request, 200, server.answer(request.command, request.path, json_body(request)))

    with http_server(behaviour) as url:
        server.url = f"{url}/v1/namespaces/team/recurrences/gpt-0"
        yield server
