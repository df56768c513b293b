"""A certificate's distinguished name, as Java writes it. Pure.

Source: RFC 2253, `X500Principal.getName`: the last part of the name first, `CN=alice,OU=sales,O=Acme`.
"""

from __future__ import annotations


def distinguished_name(certificate: bytes) -> str:
    """The subject of a DER certificate. ValueError for bytes that are none."""
    from cryptography import x509  # an optional package: only a listener with client certificates needs it

    return x509.load_der_x509_certificate(certificate).subject.rfc4514_string()
