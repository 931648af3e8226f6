"""A training pod that attempts forbidden requests and prints the responses as one line of JSON.

Told by its environment: VICTIM_GPU, VICTIM_NAMESPACE, VICTIM_RECURRENCE, VICTIM_TOKEN (a token that was stolen).
"""

from __future__ import annotations

import collections
import functools
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from wattloop.gpus.agent import AgentConnection, AgentRequestError, AgentUnavailable

FLOOD_REQUESTS = 800
FLOOD_THREADS = 16
FLOOD_CONNECTIONS = 200
REPORT = {"process": "p", "sequence": 1_000_000, "epoch": 1.0, "metric": 1.0, "finished": True}
STATUS = {"status": {"result": "Reached"}}
API_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def main() -> None:
    """Tries one thing after another."""
    environment = os.environ
    gpu = environment["VICTIM_GPU"]
    own_url = environment["WATTLOOP_REPORT_URL"]
    reporting = own_url.partition("/v1/")[0]
    victim = f"{environment['VICTIM_NAMESPACE']}/recurrences/{environment['VICTIM_RECURRENCE']}"
    victim_url = f"{reporting}/v1/namespaces/{victim}"
    own_token = Path(environment["WATTLOOP_TOKEN_FILE"]).read_text().strip()
    api_token = (API_TOKEN / "token").read_text().strip()
    namespace, _, name = environment["WATTLOOP_JOB"].partition("/")
    api = f"https://kubernetes.default.svc/apis/wattloop.dev/v1alpha1/namespaces/{namespace}"
    own_status = f"{api}/trainingrecurrences/{environment['WATTLOOP_RECURRENCE']}/status"
    agent = AgentConnection(environment["WATTLOOP_AGENT_SOCKET"])
    print(
        json.dumps(
            {
                "hold another's limit": asked(lambda: agent.hold_limit([gpu], 150.0)),
                "hold another's clocks": asked(lambda: agent.hold_clocks([gpu], 300.0)),
                "release another's": asked(lambda: agent.release([gpu])),
                "read another's energy": asked(lambda: agent.energy([gpu])),
                "report for another": posted(f"{victim_url}/progress", own_token),
                "report with another's token": posted(f"{own_url}/progress", environment["VICTIM_TOKEN"]),
                "report with a token of the API server": posted(f"{own_url}/progress", api_token),
                "read another's decision": posted(f"{victim_url}/decision", own_token, method="GET"),
                "report energy as an agent": posted(f"{reporting}/v1/nodes/node-0/energy", own_token),
                "write its status": posted(own_status, api_token, method="PATCH", body=STATUS),
                "write its status with a report's token": posted(own_status, own_token, method="PATCH", body=STATUS),
                "write its job's status": posted(
                    f"{api}/recurringtrainingjobs/{name}/status", api_token, method="PATCH", body=STATUS
                ),
                "flood of reports": flood(f"{victim_url}/progress", own_token),
                "flood of its own reports": timed_flood(
                    f"{own_url}/progress", own_token, {"process": "p", "sequence": 1, "epoch": 0.0}
                ),
                "flood of connections": connections(environment["WATTLOOP_AGENT_SOCKET"]),
            }
        ),
        flush=True,
    )


def asked(question: Callable[[], object]) -> str:
    """The agent's response: the reason of its rejection, or that it granted the request."""
    try:
        return f"granted: {question()}"
    except AgentRequestError as refusal:
        return refusal.reason


def posted(url: str, token: str, *, method: str = "POST", body: object = REPORT) -> int:
    """The code of an HTTP answer."""
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    request = urllib.request.Request(
        url,
        method=method,
        data=None if method == "GET" else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": kind},
    )
    try:
        with urllib.request.urlopen(request, timeout=60, context=trusting_context(url)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code


@functools.cache
def trusting_context(url: str) -> ssl.SSLContext:
    """The context with the authority of a server: the cluster's own, or that of the reporting API."""
    of_cluster = url.startswith("https://kubernetes.default.svc")
    return ssl.create_default_context(cafile=API_TOKEN / "ca.crt" if of_cluster else os.environ["WATTLOOP_CA_FILE"])


def flood(url: str, token: str, body: object = REPORT) -> dict[str, int]:
    """How often each answer came to hundreds of requests; one that got none counts as its error."""

    def one(_number: int) -> str:
        try:
            return str(posted(url, token, body=body))
        except OSError as error:
            return type(error).__name__

    with ThreadPoolExecutor(FLOOD_THREADS) as pool:
        return dict(collections.Counter(pool.map(one, range(FLOOD_REQUESTS))))


def timed_flood(url: str, token: str, body: object) -> dict[str, object]:
    """The same, with the seconds that it took."""
    begin = time.monotonic()
    return {"answers": flood(url, token, body), "seconds": time.monotonic() - begin}


def connections(socket: str) -> dict[str, int]:
    """The outcome of many connections to the agent that all stay open."""
    opened = [AgentConnection(socket) for _ in range(FLOOD_CONNECTIONS)]
    answers: collections.Counter[str] = collections.Counter()
    for each in opened:
        try:
            each.gpus()
            answers["served"] += 1
        except AgentRequestError as refusal:
            answers[refusal.reason] += 1
        except AgentUnavailable:
            answers["Unavailable"] += 1
    for each in opened:
        each.close()
    return dict(answers)


if __name__ == "__main__":
    main()
