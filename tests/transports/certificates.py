"""Certificates for tests of TLS: an authority, and servers that it vouches for or does not."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Writes PEM files into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Holdfast tests")])
        builder = x509.CertificateBuilder().subject_name(self._name).issuer_name(self._name)
        extension = x509.BasicConstraints(ca=True, path_length=None)
        signed = (
            _dated(builder, self._key, 0)
            .add_extension(extension, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / "ca.pem"
        self.file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def server(
        self, name: str, *, host: str = "localhost", days: int = 0, self_signed: bool = False
    ) -> tuple[Path, Path]:
        """(certificate, key). `days` moves its time: negative is expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        names: list[x509.GeneralName] = [x509.DNSName(host)]
        if host == "localhost":
            names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if self_signed else self._name)
        )
        builder = _dated(builder, key, days).add_extension(x509.SubjectAlternativeName(names), critical=False)
        signed = builder.sign(key if self_signed else self._key, hashes.SHA256())
        certificate, private = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return certificate, private


def _dated(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC) + timedelta(days=days)
    return (
        builder.public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )
