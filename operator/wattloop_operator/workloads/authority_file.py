"""The certificates by which pods check the reporting API, from a file that may be rotated."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from wattloop.errors import UsageError

logger = logging.getLogger(__name__)


class AuthorityFile:
    """Certificates in PEM, as the file has them when a pod is started.

    Args:
        path: The file; None: pods trust what their images trust.

    Raises:
        UsageError: There are no certificates in it.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        try:
            self._text = self._read()
        except (OSError, ValueError) as error:
            raise UsageError(
                f"--report-certificate-authority: {path}: {error}; expected a file of certificates (PEM)"
            ) from error

    def text(self) -> str:
        """The certificates; those of before where the file cannot be read now. Empty: there is no file."""
        try:
            self._text = self._read()
        except (OSError, ValueError) as error:
            logger.warning("%s: %s; pods are given the certificates that it had before", self._path, error)
        return self._text

    def _read(self) -> str:
        if self._path is None:
            return ""
        text = self._path.read_text(encoding="ascii")
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
        return text
