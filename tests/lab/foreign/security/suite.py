"""The checks of clients that log in."""

from __future__ import annotations

from functools import partial

from tests.lab.foreign.checks import Check, Suite
from tests.lab.foreign.go.program import GO
from tests.lab.foreign.security import go, java, librdkafka
from tests.lab.foreign.security.credentials import LISTENERS, Way, broker_settings, remove_secrets


def suite() -> Suite:
    versions = {librdkafka.NAME: librdkafka.VERSION, java.NAME: java.java_version()}
    found = (*checks(), *java_checks())
    if not GO.can_be_built():
        return Suite(versions, found, broker_settings(), LISTENERS, remove_secrets, GO.left_out)
    GO.build()
    versions[go.NAME] = go.VERSION
    return Suite(versions, (*found, *go_checks()), broker_settings(), LISTENERS, remove_secrets)


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


def java_checks() -> list[Check]:
    name = java.NAME
    found: list[Check] = []
    for way in Way:
        found.append(Check(name, f"{way}: produce, and read in a group", partial(java.work, way)))
        if way.has_password:
            does = f"{way}: a wrong password and an unknown user are told in the same words"
            found.append(Check(name, does, partial(java.be_refused, way)))
        if way is not Way.CERTIFICATE:
            does = f"{way}: a session is renewed on its connection (KIP-368)"
            found.append(Check(name, does, partial(java.renew, way)))
    denied = (Way.SCRAM_SHA_512, Way.OAUTHBEARER, Way.CERTIFICATE)
    found += [Check(name, f"{way}: what ACLs do not allow is refused", partial(java.be_denied, way)) for way in denied]
    return found


def go_checks() -> list[Check]:
    name, way = go.NAME, Way.SCRAM_SHA_512
    found: list[Check] = []
    for client in go.CLIENTS:
        does = f"{client}: {way}: produce, and read in a group"
        found.append(Check(name, does, partial(go.work, client, way)))
        found.append(Check(name, f"{client}: {way}: a wrong password is refused", partial(go.be_refused, client, way)))
        does = f"{client}: {Way.CERTIFICATE}: produce, and read in a group"
        found.append(Check(name, does, partial(go.work, client, Way.CERTIFICATE)))
    return found
