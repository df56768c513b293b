"""Names of certificates as Java's `X500Principal.getName` writes them."""

from __future__ import annotations

import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from stratalog.server.endpoint.security.certificates import distinguished_name

KEY = ec.generate_private_key(ec.SECP256R1())
COUNTRY, ORGANIZATION, UNIT, COMMON, EMAIL = (
    NameOID.COUNTRY_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.COMMON_NAME,
    NameOID.EMAIL_ADDRESS,
)


def certificate_of(*parts: list[tuple[x509.ObjectIdentifier, str]]) -> bytes:
    attributes = [x509.RelativeDistinguishedName(x509.NameAttribute(*each) for each in part) for part in parts]
    name = x509.Name(attributes)
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(KEY, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.DER)


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ([[(COUNTRY, "US")], [(ORGANIZATION, "Acme")], [(COMMON, "alice")]], "CN=alice,O=Acme,C=US"),
        ([[(ORGANIZATION, "Acme, Inc")], [(COMMON, 'a"b')]], 'CN=a\\"b,O=Acme\\, Inc'),
        ([[(COMMON, "alice"), (UNIT, "sales")]], "CN=alice+OU=sales"),
        ([[(COMMON, "alice")], [(EMAIL, "a@b")]], "1.2.840.113549.1.9.1=#1603614062,CN=alice"),
        ([[(EMAIL, "a" * 200)]], f"1.2.840.113549.1.9.1=#1681c8{(b'a' * 200).hex()}"),
        ([], ""),
    ],
)
def test_a_name_is_written_from_its_end(parts: list[list[tuple[x509.ObjectIdentifier, str]]], name: str) -> None:
    assert distinguished_name(certificate_of(*parts)) == name


def test_what_is_no_certificate_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="error parsing"):
        distinguished_name(b"no certificate")
