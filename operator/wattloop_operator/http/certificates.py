"""Certificates of the reporting API."""

from __future__ import annotations

import logging
import ssl
import threading
from datetime import datetime
from pathlib import Path

from wattloop.errors import OperationError, UsageError

logger = logging.getLogger(__name__)

Version = tuple[tuple[int, int, int], ...]
"""What tells one content of the files from another: inode, time of change and size of each; empty: one is missing."""


class ServingCertificate:
    """The certificate chain and the key of a server, as their files are when a client connects.

    The files are looked at when a connection is made, so no connection gets a certificate that was replaced before it.
    Files that do not go together, such as half of a rotation, change nothing: the certificate before them goes on.

    Args:
        chain: The certificate and those that lead to the authority, PEM.
        key: Its private key, PEM.

    Attributes:
        context: What a server listens with.

    Raises:
        OperationError: The files cannot be read, or do not go together.
    """

    def __init__(self, chain: Path, key: Path) -> None:
        self._chain = chain
        self._key = key
        self._lock = threading.Lock()
        try:
            self._seen = self._version()
            self._load()
        except (OSError, ValueError) as error:
            raise OperationError(f"the certificate {chain} with the key {key}: {error}") from error
        # Connections start in this one, which never changes, and go over to the one of their moment.
        self.context = self._current
        self.context.sni_callback = self._go_over

    @property
    def expires_at(self) -> datetime:
        """When the certificate that a client would get now expires."""
        with self._lock:
            self._look()
            return self._expires_at

    def _go_over(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        with self._lock:
            self._look()
            connection.context = self._current

    def _look(self) -> None:
        version = self._version()
        if version == self._seen:
            return
        # Also where it cannot be served: it is said once, and tried again when the files have changed again.
        self._seen = version
        try:
            self._load()
        except (OSError, ValueError) as error:
            logger.warning(
                "the certificate %s with the key %s: %s; the one before is served, until %s",
                self._chain,
                self._key,
                error,
                self._expires_at,
            )
        else:
            logger.info("serving another certificate, %s, valid until %s", self._chain, self._expires_at)

    def _load(self) -> None:
        # An operator without a certificate does without its 8 MB.
        from cryptography import x509  # noqa: PLC0415

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._chain, self._key)
        expires_at = x509.load_pem_x509_certificate(self._chain.read_bytes()).not_valid_after_utc
        self._current, self._expires_at = context, expires_at

    def _version(self) -> Version:
        try:
            found = [path.stat() for path in (self._chain, self._key)]
        except OSError:
            return ()
        return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)


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


MAX_FLIGHTS = 10


def refusal(serving: ssl.SSLContext, trusted: str, host: str) -> str:
    """Why a client refuses a server.

    Args:
        serving: What the server listens with.
        trusted: The certificates that the client trusts, PEM.
        host: The host of the URL that the client was told.

    Returns:
        The reason in OpenSSL's words; empty: it does not refuse it.

    Raises:
        ssl.SSLError: The handshake fails for another reason than trust.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    client = ssl.create_default_context(cadata=trusted).wrap_bio(to_client, to_server, server_hostname=host)
    for _ in range(MAX_FLIGHTS):
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        else:
            return ""
        try:
            server.do_handshake()
        except ssl.SSLWantReadError:
            continue
    raise ssl.SSLError(f"the handshake with {host} does not end")
