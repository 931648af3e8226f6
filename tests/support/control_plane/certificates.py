"""Short-lived certificates and keys of one control plane, created at each start."""

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID_FOR = datetime.timedelta(days=1)


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    private_key: bytes

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write both into a folder, as tls.crt and tls.key."""
        files = folder / "tls.crt", folder / "tls.key"
        for file, content in zip(files, (self.certificate, self.private_key), strict=True):
            file.write_bytes(content)
        return files

    def serving_context(self, folder: Path) -> ssl.SSLContext:
        """The TLS context of a server with this certificate, which is written into the folder."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.write(folder))
        return context


def private_key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The key in PEM, without a passphrase."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def signing_key() -> KeyPair:
    """A key pair for service-account tokens; `certificate` is the public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return KeyPair(public, private_key_pem(key))


class CertificateAuthority:
    """Signs the API server's certificate and those of its administrators."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "wattloop-tests")])
        self._certificate = (
            _builder(name, name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    key_cert_sign=True,
                    crl_sign=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> bytes:
        """The authority's own certificate, PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def server(self, addresses: Sequence[str], names: Sequence[str]) -> KeyPair:
        """A server certificate for IP addresses and DNS names."""
        alternatives: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        alternatives += [x509.DNSName(name) for name in names]
        return self._issue(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])]),
            ExtendedKeyUsageOID.SERVER_AUTH,
            alternatives,
        )

    def client(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """A client certificate; to Kubernetes the common name is the user, the organizations are groups."""
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        return self._issue(x509.Name(attributes), ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def _issue(self, subject: x509.Name, usage: x509.ObjectIdentifier, alternatives: list[x509.GeneralName]) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self._certificate.subject, key.public_key())
        # Required if OpenSSL verifies strictly, as with Python 3.13.
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(authority_key, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), private_key_pem(key))


def _builder(subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        # Also valid by a clock that is slightly behind.
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + _VALID_FOR)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )
