"""The reporting API's certificate and the authorities of pods and agents, and a handshake between them."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from support.control_plane.certificates import KeyPair


@dataclass(frozen=True)
class Certificates:
    """The contents of the secrets and of the agent's ConfigMap."""

    authority: bytes
    authority_key: bytes
    trusted_by_pods: bytes
    trusted_by_agents: bytes
    served: bytes
    key: bytes

    @property
    def parsed(self) -> x509.Certificate:
        """The certificate that is served."""
        return x509.load_pem_x509_certificate(self.served)


def handshake(certificates: Certificates, host: str, folder: Path) -> str:
    """How a client of a host name is greeted that trusts what pods trust: welcome, or why not."""
    serving = KeyPair(certificates.served, certificates.key).serving_context(folder)
    trusting = ssl.create_default_context(cadata=certificates.trusted_by_pods.decode())
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python does by default since 3.13
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving.wrap_bio(up, down, server_side=True)
    client = trusting.wrap_bio(down, up, server_hostname=host)
    done: set[ssl.SSLObject] = set()
    while len(done) < 2:
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return str(error.verify_message)
            done.add(side)
    return "welcome"
