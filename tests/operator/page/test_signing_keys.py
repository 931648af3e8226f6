"""Which account a token names, if the API server has signed it."""

from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from support.control_plane.signed_tokens import PrivateKey, public_key, signed_token
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import Request, StatusError
from wattloop_operator.cluster.auth.viewers import KEYS_SECONDS, READ_SECONDS, SigningKeys

ANN = {"sub": "system:serviceaccount:team:ann"}


class KeySet:
    """A transport to an API server that has keys."""

    def __init__(self, *keys: Any) -> None:
        self.now = 0.0
        self.keys = list(keys)
        self.reads = 0
        self.is_refused = False

    def __call__(self, request: Request) -> dict[str, Any]:
        self.reads += 1
        if self.is_refused:
            raise StatusError(request, 403, "Forbidden", "forbidden")
        return {"keys": self.keys}


def keys_of(server: KeySet) -> SigningKeys:
    return SigningKeys(ClusterApi(server), lambda: server.now)


@pytest.mark.parametrize(
    "generate", [lambda: rsa.generate_private_key(65537, 2048), lambda: generate_private_key(SECP256R1())]
)
def test_a_token_names_its_account_if_the_key_that_it_names_has_signed_it(generate: Callable[[], PrivateKey]) -> None:
    own, foreign = generate(), generate()
    keys = keys_of(KeySet({"kty": "OKP", "kid": "other"}, {"kty": "EC"}, None, public_key(own)))
    signed = signed_token(ANN, own)
    assert keys.account_of(signed) == ANN["sub"]
    head, claims, signature = signed.split(".")
    forged = signed_token({"sub": "root"}, foreign)
    for each in (forged, f"{head}.{forged.split('.')[1]}.{signature}", f"{head}.{claims}.", f"{head}.{claims}.!"):
        assert keys.account_of(each) == "", each
    unsigned = signed_token(ANN, own).replace(head, "eyJhbGciOiJub25lIiwia2lkIjoia2V5In0")
    for each in ("", "opaque", "a.b.c", "...", f"{head}..{signature}", unsigned, signed_token(ANN, own, "later")):
        assert keys.account_of(each) is None, each


def test_keys_are_read_again_for_one_that_is_not_known_and_after_a_failure_but_not_at_each_token(
    caplog: pytest.LogCaptureFixture,
) -> None:
    old, new = generate_private_key(SECP256R1()), generate_private_key(SECP256R1())
    server = KeySet(public_key(old, "old"))
    keys = keys_of(server)
    server.is_refused = True
    for _ in range(3):
        assert keys.account_of(signed_token(ANN, old, "old")) is None
    assert (server.reads, caplog.text.count("share the limit of unknown tokens")) == (1, 1)
    server.is_refused = False
    server.now += READ_SECONDS
    assert keys.account_of(signed_token(ANN, old, "old")) == ANN["sub"]
    server.keys = [public_key(new, "new")]
    assert keys.account_of(signed_token(ANN, new, "new")) is None
    server.now += READ_SECONDS
    assert keys.account_of(signed_token(ANN, new, "new")) == ANN["sub"]
    assert keys.account_of(signed_token(ANN, old, "old")) is None
    assert server.reads == 3
    server.now += KEYS_SECONDS
    assert keys.account_of(signed_token(ANN, new, "new")) == ANN["sub"]
    assert server.reads == 4
