"""Service-account tokens that are signed here, with a key of one's own choice and any time of expiry."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature


def resigned(token: str, key: EllipticCurvePrivateKey, *, seconds: float = 3600.0) -> str:
    """A token with the claims of another one, which expires after these seconds, signed by this key on P-256."""
    head, claims = (json.loads(_decoded(each)) for each in token.split(".")[:2])
    expires = time.time() + seconds
    claims |= {"exp": int(expires), "iat": int(expires) - 3600, "nbf": int(expires) - 3600}
    signed = f"{_encoded(head)}.{_encoded(claims)}"
    signature = decode_dss_signature(key.sign(signed.encode(), ECDSA(hashes.SHA256())))
    return f"{signed}.{_base64(b''.join(each.to_bytes(32) for each in signature))}"


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _encoded(part: Any) -> str:
    return _base64(json.dumps(part, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
