"""The checks of clients that log in."""

from __future__ import annotations

from functools import partial

from tests.foreign.checks import Check, Suite
from tests.foreign.security import librdkafka
from tests.foreign.security.credentials import LISTENERS, Way, broker_settings


def suite() -> Suite:
    return Suite({librdkafka.NAME: librdkafka.VERSION}, tuple(checks()), broker_settings(), LISTENERS)


def checks() -> list[Check]:
    name = librdkafka.NAME
    found: list[Check] = []
    for way in Way:
        found.append(Check(name, f"{way}: produce, and read in a group", partial(librdkafka.work, way)))
        found.append(Check(name, f"{way}: what ACLs do not allow is refused", partial(librdkafka.be_denied, way)))
        if way.has_password:
            does = f"{way}: a wrong password is told late, an unknown user in the same words"
            found.append(Check(name, does, partial(librdkafka.be_refused, way)))
        if way is not Way.CERTIFICATE:
            does = f"{way}: a session is renewed on its connection (KIP-368)"
            found.append(Check(name, does, partial(librdkafka.renew, way)))
    found.append(Check(name, "OAUTHBEARER: a token by another key, or of the past", librdkafka.have_no_key))
    found.append(Check(name, "no certificate where one is required", librdkafka.show_no_certificate))
    return found
