"""rskafka logs in over TLS, works, and is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.lab.foreign.rust.program import RUST
from tests.lab.foreign.security.credentials import ALICE, PASSWORDS, Way, make_users, secrets
from tests.lab.foreign.security.librdkafka import allowed
from tests.lab.foreign.served import Served

WRONG = "wr0ng"


def given_of(way: Way, password: str = PASSWORDS[ALICE]) -> dict[str, str]:
    """What a program needs to be alice."""
    found = {"authority": str(secrets().trusted)}
    if way is Way.CERTIFICATE:
        return found | {"certificate": str(secrets().certificates[ALICE])}
    if way is Way.OAUTHBEARER:
        return found | {"mechanism": way, "token": secrets().token(ALICE)}
    return found | {"mechanism": way, "user": ALICE, "password": password}


def log_in(client: str, way: Way, served: Served) -> None:
    RUST.run(client, "secured", served.bootstrap_of(way.listener), topic=allowed(served, way), **given_of(way))


def be_denied(client: str, way: Way, served: Served) -> None:
    topic = allowed(served, way, grants=False)
    RUST.run(client, "denied", served.bootstrap_of(way.listener), topic=topic, **given_of(way))


def be_refused(client: str, way: Way, served: Served) -> None:
    make_users(served)
    RUST.run(client, "refused", served.bootstrap_of(way.listener), **given_of(way, WRONG))


def checks(client: str) -> dict[str, Callable[[Served], None]]:
    found: dict[str, Callable[[Served], None]] = {}
    for way in Way:
        found[f"{way}: produce and read over TLS"] = partial(log_in, client, way)
        found[f"{way}: what ACLs do not allow is refused"] = partial(be_denied, client, way)
        if way.has_password:
            found[f"{way}: a wrong password is refused"] = partial(be_refused, client, way)
    return found
