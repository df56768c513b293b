"""Addresses of clients in one form, so that rules about them hold whatever kind of socket a client came through. Pure.

A socket on all addresses of IPv6 also takes clients of IPv4, and shows 10.0.0.7 as ::ffff:10.0.0.7; Java turns such
addresses back into IPv4 ones by itself. It prints IPv6 addresses in full, as 0:0:0:0:0:0:0:1, where Python shortens.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache


@lru_cache(maxsize=4_096)
def host_address(text: str) -> str:
    """An address in the form in which addresses are compared: IPv4, or IPv6 as short as can be, without a zone. What is
    no address stays as it is.

    >>> [host_address(each) for each in ("::ffff:10.0.0.7", "0:0:0:0:0:0:0:1", "FE80::1%eth0", "*")]
    ['10.0.0.7', '::1', 'fe80::1', '*']
    """
    try:
        found = ipaddress.ip_address(text.partition("%")[0].strip("[]"))
    except ValueError:
        return text
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)
