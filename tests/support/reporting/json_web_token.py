"""Unsigned tokens in the form of the API server's, for fake TokenReviews."""

import base64
import json

from wattloop_operator.workloads.injection import AUDIENCE


def json_web_token(name: str, audience: object = AUDIENCE) -> str:
    header, claims = {"alg": "RS256"}, {"aud": [audience] if isinstance(audience, str) else audience, "sub": name}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (header, claims)]
    return ".".join([*parts, "c2lnbmF0dXJl"])
