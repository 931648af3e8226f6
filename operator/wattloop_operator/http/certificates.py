"""The reporting API's TLS: its certificate and its authority, from files that may be rotated, and its connections."""

from __future__ import annotations

import contextlib
import logging
import ssl
import threading
from datetime import datetime
from pathlib import Path

from wattloop.errors import OperationError, UsageError

logger = logging.getLogger(__name__)

MAX_FLIGHTS = 10
READ_BYTES = 16 * 1024
Version = tuple[tuple[int, int, int], ...]
"""Identifies the content of files: inode, modification time and size of each; empty if a file is missing."""


class ServingCertificate:
    """The certificate chain and the key of a server, as their files are when a client connects.

    Each new connection checks the files, so none gets a certificate that was replaced before it.
    Files that do not match, as in the middle of a rotation, change nothing: the previous
    certificate is served.

    Args:
        chain: The certificate and its intermediates, PEM.
        key: Its private key, PEM.

    Attributes:
        context: The server's TLS context.

    Raises:
        OperationError: The files cannot be read or do not match.
    """

    def __init__(self, chain: Path, key: Path) -> None:
        self._chain = chain
        self._key = key
        self._lock = threading.Lock()
        try:
            self._loaded_version = self._version()
            self._load()
        except (OSError, ValueError) as error:
            raise OperationError(f"the certificate {chain} with the key {key}: {error}") from error
        # Each handshake starts in this context, which never changes, and switches to the current
        # one.
        self.context = self._current
        self.context.sni_callback = self._switch

    @property
    def expires_at(self) -> datetime:
        """Expiry of the certificate that a client would get now."""
        with self._lock:
            self._reload_if_changed()
            return self._expires_at

    def _switch(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        with self._lock:
            self._reload_if_changed()
            connection.context = self._current

    def _reload_if_changed(self) -> None:
        version = self._version()
        if version == self._loaded_version:
            return
        # Also if loading fails: it is logged once, and tried again after the next change.
        self._loaded_version = version
        try:
            self._load()
        except (OSError, ValueError) as error:
            logger.warning(
                "the certificate %s with the key %s: %s; serving the previous one, valid until %s",
                self._chain,
                self._key,
                error,
                self._expires_at,
            )
        else:
            logger.info("serving a new certificate, %s, valid until %s", self._chain, self._expires_at)

    def _load(self) -> None:
        # Without a certificate the operator saves the 8 MB of this library.
        from cryptography import x509  # noqa: PLC0415

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A renegotiation costs the server more than its client.
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.load_cert_chain(self._chain, self._key)
        expires_at = x509.load_pem_x509_certificate(self._chain.read_bytes()).not_valid_after_utc
        self._current, self._expires_at = context, expires_at

    def _version(self) -> Version:
        try:
            found = [path.stat() for path in (self._chain, self._key)]
        except OSError:
            return ()
        return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)


class TlsLayer:
    """TLS of one accepted connection in memory: decrypts what the client sends, and encrypts what it gets.

    asyncio's own TLS gives each connection a buffer of 256 KiB before its client has sent a byte, and tells the server
    of a connection only after the handshake. This one holds what was received and no more.

    Args:
        context: TLS of the server.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._from_client, self._to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._from_client, self._to_client, server_side=True)
        self._is_established = False

    def decrypted(self, data: bytes) -> bytes:
        """What the client sent; empty during the handshake. What it gets meanwhile is `pending`.

        Raises:
            ssl.SSLError: It is no TLS, or the client accepts no certificate of this server.
        """
        self._from_client.write(data)
        parts = []
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            if not self._is_established:
                self._tls.do_handshake()
                self._is_established = True
            while part := self._tls.read(READ_BYTES):
                parts.append(part)
        return b"".join(parts)

    def encrypted(self, data: bytes) -> bytes:
        """The records that carry data to the client."""
        self._tls.write(data)
        return self.pending()

    def pending(self) -> bytes:
        """What the client is to get: messages of the handshake, and alerts."""
        return self._to_client.read()

    def close(self) -> None:
        """Tell the client that nothing follows."""
        if self._is_established:
            # It need not answer.
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()


class AuthorityFile:
    """A file of certificates that pods get to verify the reporting API with, as it is when a pod starts.

    Args:
        path: The file, PEM; None: pods use the certificates of their images.

    Raises:
        UsageError: The file contains no certificates.
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
        """The certificates, PEM; the previous ones if the file cannot be read now; empty without a file."""
        try:
            self._text = self._read()
        except (OSError, ValueError) as error:
            logger.warning("%s: %s; pods get its previous certificates", self._path, error)
        return self._text

    def _read(self) -> str:
        if self._path is None:
            return ""
        text = self._path.read_text(encoding="ascii")
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
        return text


def verification_error(serving: ssl.SSLContext, trusted: str, host: str) -> str:
    """Why a client would refuse a server's certificate; empty if it would accept it.

    The check is a TLS handshake in memory, so it gives OpenSSL's verdict, which is also that of
    Python's ssl in a pod.

    Args:
        serving: The server's TLS context.
        trusted: The certificates that the client trusts, PEM.
        host: The host of the client's URL.

    Raises:
        ssl.SSLError: The handshake fails for a reason other than the certificate.
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
    raise ssl.SSLError(f"the handshake with {host} did not complete")
