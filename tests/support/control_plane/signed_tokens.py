"""Service-account tokens that are signed here, with a key and claims of one's own choice, and their public key."""

import base64
import json
import time
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

PrivateKey = EllipticCurvePrivateKey | RSAPrivateKey


def resigned(token: str, key: EllipticCurvePrivateKey, *, seconds: float = 3600.0) -> str:
    """A token with the claims of another one, which expires after these seconds, signed by this key on P-256."""
    head, claims = (json.loads(_decoded(each)) for each in token.split(".")[:2])
    expires = int(time.time() + seconds)
    return signed_token(claims | {"exp": expires, "iat": expires - 3600, "nbf": expires - 3600}, key, head["kid"])


def signed_token(claims: dict[str, Any], key: PrivateKey, name: str = "key") -> str:
    """A token with these claims, signed by this key of this name, of RSA or on P-256."""
    algorithm = "RS256" if isinstance(key, RSAPrivateKey) else "ES256"
    signed = f"{_encoded({'alg': algorithm, 'kid': name})}.{_encoded(claims)}"
    if isinstance(key, RSAPrivateKey):
        return f"{signed}.{_base64(key.sign(signed.encode(), PKCS1v15(), hashes.SHA256()))}"
    signature = decode_dss_signature(key.sign(signed.encode(), ECDSA(hashes.SHA256())))
    return f"{signed}.{_base64(b''.join(each.to_bytes(32) for each in signature))}"


def public_key(key: PrivateKey, name: str = "key") -> dict[str, str]:
    """The public key of this name as a JSON Web Key."""
    if isinstance(key, RSAPrivateKey):
        rsa = key.public_key().public_numbers()
        return {"kty": "RSA", "kid": name, "alg": "RS256", "n": _number(rsa.n), "e": _number(rsa.e)}
    numbers = key.public_key().public_numbers()
    place = {"x": _base64(numbers.x.to_bytes(32)), "y": _base64(numbers.y.to_bytes(32))}
    return {"kty": "EC", "crv": "P-256", "kid": name, "alg": "ES256", "use": "sig"} | place


def _number(value: int) -> str:
    return _base64(value.to_bytes((value.bit_length() + 7) // 8))


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _encoded(part: Any) -> str:
    return _base64(json.dumps(part, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
