"""The public keys by which the API server signs the tokens of service accounts.

A token that one of them has signed is none that somebody made up, so that it is reviewed whatever others send. The keys
decide nothing else: whether a token counts, the API server says.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import threading
from collections.abc import Callable
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePublicNumbers
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from wattloop.errors import OperationError
from wattloop_operator.cluster.api import ClusterApi, NotFoundError, RejectedError
from wattloop_operator.problem_log import ProblemLog

logger = logging.getLogger(__name__)

# Of keys that are known; a token that names another one has them read again before.
KEYS_SECONDS = 3600.0
READ_SECONDS = 10.0
UNREAD = "the public keys of service accounts cannot be read, so that their tokens share the limit of unknown tokens"

Verify = Callable[[bytes, bytes], None]
"""Verifies a signature of some bytes; raises InvalidSignature or ValueError."""


class SigningKeys:
    """The public keys, read when they are needed. Thread-safe.

    Args:
        api: The API server.
        clock: Monotonic seconds.
    """

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at = -math.inf
        self._keys: dict[tuple[str, str], Verify] = {}
        self._problems = ProblemLog(logger)

    def account_of(self, token: str) -> str | None:
        """The account that a token names: "" if it names one of the keys that has not signed it, None if it names none.

        Args:
            token: The token, a JSON Web Token or any other text.
        """
        signed, _, signature = token.rpartition(".")
        try:
            head, claims = (json.loads(_decoded(each)) for each in signed.split("."))
            name = str(head["alg"]), str(head["kid"])
            account = str(claims["sub"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        verify = self._key(name)
        if verify is None:
            return None
        try:
            verify(_decoded(signature), signed.encode())
        except (InvalidSignature, ValueError):
            return ""
        return account

    def _key(self, name: tuple[str, str]) -> Verify | None:
        # While one thread reads, what it has read before counts for the others.
        if self._lock.acquire(blocking=not self._keys):
            try:
                age = self._clock() - self._read_at
                if age >= KEYS_SECONDS or (name not in self._keys and age >= READ_SECONDS):
                    self._read()
                    self._read_at = self._clock()
            finally:
                self._lock.release()
        return self._keys.get(name)

    def _read(self) -> None:
        try:
            keys = dict(filter(None, map(_key_of, self._api.token_keys())))
        except (OperationError, RejectedError, NotFoundError) as error:
            self._problems.met(UNREAD, str(error))
        else:
            self._problems.ended(UNREAD)
            self._keys = keys


def _key_of(found: Any) -> tuple[tuple[str, str], Verify] | None:
    """The algorithm and the name of a key of a JSON Web Key Set, and what verifies its signatures. None if unknown."""
    try:
        numbers = {name: int.from_bytes(_decoded(found[name])) for name in ("n", "e", "x", "y") if name in found}
        name = str(found["kid"])
        if found["kty"] == "RSA":
            rsa = RSAPublicNumbers(numbers["e"], numbers["n"]).public_key()
            return ("RS256", name), lambda signature, data: rsa.verify(signature, data, PKCS1v15(), SHA256())
        if found["kty"] == "EC" and found["crv"] == "P-256":
            curve = EllipticCurvePublicNumbers(numbers["x"], numbers["y"], SECP256R1()).public_key()
            return ("ES256", name), lambda signature, data: curve.verify(_der(signature), data, ECDSA(SHA256()))
    except (ValueError, KeyError, TypeError):
        return None
    return None


def _der(signature: bytes) -> bytes:
    """A signature of a JSON Web Token, two numbers of 32 bytes, as the library expects it."""
    if len(signature) != 64:
        raise ValueError("no signature on P-256")
    return encode_dss_signature(int.from_bytes(signature[:32]), int.from_bytes(signature[32:]))


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
