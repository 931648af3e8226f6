"""`wattloop operator` reports a cluster or a setting that it cannot use before it starts."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from support.free_ports import free_port
from support.http_stand_in import http_server, respond
from wattloop.commands.main import main

pytestmark = pytest.mark.usefixtures("restored_logging")

Responses = dict[str, tuple[int, object]]
KINDS = ("recurringtrainingjobs", "trainingrecurrences", "frequencyplans", "gpupowerpolicies")
RESOURCES = {"resources": [{"name": kind} for kind in KINDS]}
API = "/apis/wattloop.dev/v1alpha1"


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Callable[[Responses], Path]]:
    """Returns the kubeconfig of a server with these responses; without responses, no server listens."""
    stack = ExitStack()

    def serve(responses: Responses) -> Path:
        def behaviour(request: BaseHTTPRequestHandler) -> None:
            respond(request, *responses.get(request.path.partition("?")[0], (404, {"message": "not found"})))

        url = stack.enter_context(http_server(behaviour)) if responses else f"http://127.0.0.1:{free_port()}"
        path = tmp_path / "kubeconfig"
        cluster = {"name": "c", "cluster": {"server": url}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "c",
                    "clusters": [cluster],
                    "contexts": [context],
                    "users": [{"name": "u", "user": {}}],
                }
            )
        )
        return path

    with stack:
        yield serve


@pytest.mark.parametrize(
    ("responses", "message"),
    [
        ({"/": (200, {})}, "the cluster does not know wattloop.dev/v1alpha1; install the custom resource definitions"),
        ({API: (200, {"resources": []})}, "the cluster does not serve recurringtrainingjobs.wattloop.dev"),
        ({API: (403, {"message": "forbidden"})}, "the API server rejects the operator"),
        ({API: (401, {"message": "Unauthorized"})}, "401 : Unauthorized; check the user of the kubeconfig"),
        ({API: (200, b"<html>log in</html>")}, "found '<html>log in</html>', expected a JSON object"),
        ({API: (200, b"")}, "found '', expected a JSON object"),
        ({API: (200, b"[]")}, "found '[]', expected a JSON object"),
        (
            {API: (200, RESOURCES), f"{API}/recurringtrainingjobs": (403, {"message": "jobs are forbidden"})},
            "the operator may not read recurringtrainingjobs (jobs are forbidden); give its service account the roles",
        ),
    ],
)
def test_an_unusable_cluster_is_reported_at_once(
    responses: Responses,
    message: str,
    kubeconfig: Callable[[Responses], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    database = tmp_path / "wattloop.db"
    assert main(["operator", f"--kubeconfig={kubeconfig(responses)}", f"--database=sqlite:///{database}"]) == 1
    assert message in capsys.readouterr().err
    assert not database.exists(), "no file is left if the operator cannot start"


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--kubeconfig=/nowhere/at/all"], 2, "there is no file /nowhere/at/all"),
        (["--workers=none"], 2, "expected a whole number from 1 to 64"),
    ],
)
def test_invalid_options_are_reported(
    options: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["operator", *options]) == code
    assert message in capsys.readouterr().err


def test_a_missing_context_is_reported(
    kubeconfig: Callable[[Responses], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["operator", f"--kubeconfig={kubeconfig({'/': (200, {})})}", "--context=other"]) == 1
    assert "no cluster: " in capsys.readouterr().err


INVALID_KUBECONFIGS = {
    "empty": b"",
    "not text": b"\xde\x00\xff",
    "not YAML": b"a: b: c: [",
    "a list": b"- a",
    "a string": b"a",
    "another kind": b"kind: Pod",
    "no clusters": b"{current-context: a, contexts: [{name: a, context: {cluster: c, user: u}}], clusters: 7}",
}


@pytest.mark.parametrize("content", INVALID_KUBECONFIGS.values(), ids=INVALID_KUBECONFIGS.keys())
@pytest.mark.parametrize("command", [["operator"], ["check"], ["history", "digits"]])
def test_an_invalid_kubeconfig_is_reported(
    command: list[str],
    content: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(content)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    options = [] if command[0] == "history" else [f"--kubeconfig={path}"]
    assert main([*command, *options]) == 1
    message = capsys.readouterr().err
    assert message.startswith(f"wattloop {command[0]}: no cluster")
    assert message.count("\n") == 1


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["operator", "--help"])
    assert exited.value.code == 0
    assert "wattloop operator --context kind-dev" in capsys.readouterr().out
