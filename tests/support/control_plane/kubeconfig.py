"""Kubeconfig files: the address of an API server and a user's credentials."""

import base64
import os
from pathlib import Path
from typing import Any

import yaml

from support.control_plane.certificates import KeyPair


def write_kubeconfig(
    path: Path,
    *,
    server: str,
    authority: bytes,
    certificate: KeyPair | None = None,
    token: str | None = None,
    namespace: str = "default",
) -> Path:
    """Write a kubeconfig of one user with a client certificate or a bearer token.

    Args:
        path: The file; only its owner can read it.
        authority: Certificate of the server's authority, PEM.
    """
    user: dict[str, Any] = {}
    if certificate is not None:
        user["client-certificate-data"] = _base64(certificate.certificate)
        user["client-key-data"] = _base64(certificate.private_key)
    if token is not None:
        user["token"] = token
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "clusters": [
            {"name": "tests", "cluster": {"server": server, "certificate-authority-data": _base64(authority)}}
        ],
        "users": [{"name": "tests", "user": user}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests", "namespace": namespace}}],
    }
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        yaml.safe_dump(content, file)
    return path


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
