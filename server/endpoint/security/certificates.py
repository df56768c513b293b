"""A certificate's distinguished name, as Java writes it. Pure.

Source: RFC 2253, `X500Principal.getName`: the last part of the name first, `CN=alice,OU=sales,O=Acme`; a part without
a short name by its number, and its value as bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cryptography.x509 import Name, NameAttribute


def distinguished_name(certificate: bytes) -> str:
    """The subject of a DER certificate. ValueError for bytes that are none."""
    from cryptography import x509  # an optional package: only a listener with client certificates needs it

    return _text(x509.load_der_x509_certificate(certificate).subject)


def _text(name: Name) -> str:
    """The parts of a name, each an attribute or several with + between them."""
    return ",".join("+".join(map(_attribute, part)) for part in reversed(name.rdns))


def _attribute(attribute: NameAttribute[Any]) -> str:
    if attribute.rfc4514_attribute_name != attribute.oid.dotted_string:
        return attribute.rfc4514_string()
    return f"{attribute.oid.dotted_string}=#{_value(attribute).hex()}"


def _value(attribute: NameAttribute[Any]) -> bytes:
    """The value as DER: what follows the number in a name of this attribute alone."""
    from cryptography import x509

    rest = x509.Name([attribute]).public_bytes()
    for _ in range(3):  # the name, its part, the attribute: each a tag and a length around the rest
        rest = rest[_content(rest) :]
    return rest[_content(rest) + rest[1] :]  # the number itself is shorter than 128 bytes


def _content(data: bytes) -> int:
    """Where the content of a DER element begins: behind its tag and length."""
    return 2 if data[1] < 0x80 else 2 + (data[1] & 0x7F)
