"""The tokens of a page's viewers on a real API server: until when each is accepted, and which need its review."""

import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from kubernetes import client, config

from support.control_plane.commands import ClusterCommand
from support.control_plane.control_plane import ControlPlane
from support.control_plane.job_manifest import job_manifest
from support.control_plane.signed_tokens import resigned
from support.control_plane.tokens import service_account_token
from support.control_plane.waiting import LONGEST_WAIT_SECONDS
from support.live_page import serving_viewers
from support.test_sets.parameters import exhaustive_after
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import HttpTransport
from wattloop_operator.cluster.auth.token_review import reviewed_user
from wattloop_operator.cluster.auth.viewers import REVIEWED_SECONDS, UI_AUDIENCE, UNKNOWN_TOKENS_OF_ADDRESS, SigningKeys
from wattloop_operator.page.authentication import SIGNED_OUT

ACCOUNT = "viewer"


@pytest.fixture
def token(kubectl: ClusterCommand, core: client.CoreV1Api, crds: None, namespace: str) -> str:
    """The token of an account that may see the job of its namespace."""
    kubectl.apply(job_manifest("mine"), namespace=namespace)
    kubectl("create", "serviceaccount", ACCOUNT, namespace=namespace)
    account = f"--serviceaccount={namespace}:{ACCOUNT}"
    kinds = "--resource=recurringtrainingjobs.wattloop.dev,trainingrecurrences.wattloop.dev"
    kubectl("create", "role", "viewer", "--verb=list", kinds, namespace=namespace)
    kubectl("create", "rolebinding", "viewer", "--role=viewer", account, namespace=namespace)
    return service_account_token(core, namespace, ACCOUNT, audiences=[UI_AUDIENCE])


def signing_key_of(control_plane: ControlPlane) -> EllipticCurvePrivateKey:
    key = load_pem_private_key((control_plane.folder / "tokens.key").read_bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    return key


def await_rejection(admin: client.ApiClient, token: str) -> None:
    """Wait until the API server rejects a token: it remembers an acceptance for 10 s, and accepts one for 60 s more."""
    api, deadline = ClusterApi(HttpTransport(admin)), time.monotonic() + LONGEST_WAIT_SECONDS
    while reviewed_user(api, token, UI_AUDIENCE) is not None:
        assert time.monotonic() < deadline, "the API server still accepts the token"
        time.sleep(0.2)


@pytest.mark.parametrize("end", exhaustive_after(["revoked", "expired"]))
def test_a_stream_ends_with_its_token(
    end: str, token: str, kubectl: ClusterCommand, admin: client.ApiClient, control_plane: ControlPlane, namespace: str
) -> None:
    if end == "expired":
        token = resigned(token, signing_key_of(control_plane), seconds=-55.0)
    now, headers = [0.0], {"Authorization": f"Bearer {token}"}
    with serving_viewers(HttpTransport(admin), lambda: now[0]) as url, httpx.Client(headers=headers) as page:
        assert page.get(f"{url}/", timeout=60).status_code == 200
        now[0] = REVIEWED_SECONDS - 1
        with page.stream("GET", f"{url}/events", timeout=60) as stream:
            lines = (line for line in stream.iter_lines() if line)
            assert [next(lines) for _ in range(2)] == ["retry: 500", "event: version"]
            if end == "revoked":
                kubectl("delete", "serviceaccount", ACCOUNT, namespace=namespace)
            await_rejection(admin, token)
            now[0] = REVIEWED_SECONDS
            assert list(lines)[-1] == f'data: "{SIGNED_OUT}"'


def test_tokens_of_another_key_keep_none_out_that_the_api_server_has_signed(
    token: str, service_account_kubeconfig: Callable[[str, str], Path], admin: client.ApiClient, namespace: str
) -> None:
    foreign = generate_private_key(SECP256R1())
    # Every service account may read the keys; the page needs no right of its own for them.
    with config.new_client_from_config(str(service_account_kubeconfig(namespace, ACCOUNT))) as own:
        keys = SigningKeys(ClusterApi(HttpTransport(own)), time.monotonic)
        assert keys.account_of(token) == f"system:serviceaccount:{namespace}:{ACCOUNT}"
        assert keys.account_of(resigned(token, foreign)) == ""
    with serving_viewers(HttpTransport(admin)) as url, httpx.Client(base_url=url, timeout=60) as page:
        made_up = ["x.y.z", *(resigned(token, foreign, seconds=1.0 + each) for each in range(60))]
        made_up += [f"text-{each}" for each in range(2 * int(UNKNOWN_TOKENS_OF_ADDRESS.burst))]
        statuses = {page.post("/sign-in", data={"token": each}).status_code for each in made_up}
        assert statuses == {401, 429}
        begun = time.perf_counter()
        assert page.post("/sign-in", data={"token": token}).status_code == 303
        print(f"signed in after {1e3 * (time.perf_counter() - begun):.0f} ms, beside {len(made_up)} made-up tokens")
