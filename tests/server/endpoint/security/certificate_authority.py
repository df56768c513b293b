"""A certificate authority for tests: keys and certificates as PEM files."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)


def name_of(common: str, *units: str) -> x509.Name:
    """`CN=common,OU=...,O=Acme`, written from the end, as certificates have it."""
    parts = [(NameOID.ORGANIZATION_NAME, "Acme"), *((NameOID.ORGANIZATIONAL_UNIT_NAME, unit) for unit in units)]
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in [*parts, (NameOID.COMMON_NAME, common)]])


class CertificateAuthority:
    """`authority` is the PEM file of its own certificate."""

    def __init__(self, folder: Path, common: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = name_of(common)
        self._certificate = self._signed(self._name, self._key.public_key(), is_authority=True)
        self.authority = folder / f"{common}.pem"
        self.authority.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def _signed(self, name: x509.Name, key: ec.EllipticCurvePublicKey, is_authority: bool) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(
                x509.KeyUsage(True, False, False, False, False, is_authority, is_authority, False, False), critical=True
            )
            .sign(self._key, hashes.SHA256())
        )

    def issue(self, common: str, *units: str, password: bytes | None = None) -> Path:
        """A PEM file with a new private key and its certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(name_of(common, *units), key.public_key(), is_authority=False)
        file = self._folder / f"{common}.pem"
        protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            protection = serialization.BestAvailableEncryption(password)
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)
        file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        return file
