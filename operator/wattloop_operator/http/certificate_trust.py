"""Whether who is given certificates to trust would trust what is served: asked in a handshake without a network."""

from __future__ import annotations

import ssl

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
