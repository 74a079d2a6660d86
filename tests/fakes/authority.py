"""A private certificate authority, made for one test run, and a server certificate of it."""

import datetime
import ssl
from pathlib import Path

import pytest


def authority(folder: Path, *names: str) -> tuple[Path, ssl.SSLContext]:
    """The CA's PEM file, and the context of a server of these names; skips without cryptography."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])

    now = datetime.datetime.now(datetime.UTC)
    root_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

    def certificate(subject: str, public: object) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named("double CA"))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )

    root = (
        certificate("double CA", root_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(root_key, hashes.SHA256())
    )
    hosts = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    leaf = (
        certificate(names[0], key.public_key())
        .add_extension(hosts, critical=False)
        .sign(root_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    ca_file, chain = folder / "ca.pem", folder / "server.pem"
    ca_file.write_bytes(root.public_bytes(pem))
    chain.write_bytes(
        leaf.public_bytes(pem)
        + key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    return ca_file, context
