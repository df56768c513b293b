"""How a user enters: by the cluster's own users, or as a connection that its brokers check. I/O: the cluster.

A cluster that is known by its metadata root has the users' credentials and the ACLs there. One that is known by its
brokers' addresses has brokers that check a login and apply the ACLs to its connection.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from stratalog.clients.console.asker import AskedCluster, Asker
from stratalog.clients.console.beside import NOTHING, Beside
from stratalog.replication.metadata.acls import AclBinding, Authorizer, Principal
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.scram import ITERATIONS_DEFAULT, ScramMechanism
from stratalog.storage.errors import SaslAuthenticationFailedError, StratalogError

WRONG_LOGIN = "The name or the password is wrong."
PASSWORD_CHARACTERS_MAX = 1_024


@dataclass(frozen=True, slots=True)
class EnteredUser:
    """A user who is in.

    authorizer  of the newest ACLs; None: everything is allowed, or brokers decide
    close       ends what belongs to the user alone
    beside      what belongs to the cluster and is not in it
    """

    cluster: AskedCluster
    principal: Principal
    authorizer: Callable[[], Authorizer | None]
    close: Callable[[], None]
    beside: Beside = NOTHING

    def asker(self, now_ms: int) -> Asker:
        """The user as one who asks now."""
        return Asker(self.cluster, self.principal, self.authorizer(), now_ms, self.beside)


class Door(Protocol):
    """Lets users in."""

    def needs_login(self) -> bool:
        """Whether nobody sees anything without a login."""

    def without_login(self, host: str) -> EnteredUser:
        """What a visitor from this address sees where no login is needed."""

    def enter(self, name: str, password: str, host: str) -> EnteredUser:
        """A login. SaslAuthenticationFailedError, which does not say whether the name is known."""


def nothing() -> None:
    """Ends nothing."""


class RootDoor:
    """Of a cluster that is known by its metadata root.

    As soon as the cluster has a SCRAM user a login is needed. ACLs count as soon as there is one, or a super user is
    named: brokers' settings are not on storage.
    """

    def __init__(self, cluster: AskedCluster, super_users: Iterable[str] = (), beside: Beside = NOTHING) -> None:
        """`super_users`: principals, `User:admin`, who may do everything."""
        self._cluster = cluster
        self._super_users = frozenset(super_users)
        self._beside = beside

    def needs_login(self) -> bool:
        """By the last users that are known while the cluster is away: pages then show what they showed before."""
        try:
            self._cluster.view.refresh(max_age_ms=1)
        except StratalogError:
            if not self._cluster.view.image.cluster_id:
                raise
        return bool(self._cluster.view.image.scram_credentials)

    def without_login(self, host: str) -> EnteredUser:
        return EnteredUser(self._cluster, Principal(host=host), self._authorizer, nothing, self._beside)

    def enter(self, name: str, password: str, host: str) -> EnteredUser:
        self._cluster.view.refresh()
        if not is_password_right(self._cluster.view.image, name, password):
            raise SaslAuthenticationFailedError(WRONG_LOGIN)
        principal = Principal(f"User:{name}", host)
        return EnteredUser(self._cluster, principal, lambda: self._authorizer_of(name), nothing, self._beside)

    def _authorizer_of(self, name: str) -> Authorizer | None:
        """SaslAuthenticationFailedError when the user was removed since the login."""
        credentials = self._cluster.view.image.scram_credentials
        if not any((name, each.value) in credentials for each in ScramMechanism):
            raise SaslAuthenticationFailedError("This user was removed.")
        return self._authorizer()

    def _authorizer(self) -> Authorizer | None:
        image = self._cluster.view.image
        if not image.acls and not self._super_users:
            return None
        return Authorizer((AclBinding.from_record(each) for each in image.acls.values()), self._super_users)


def is_password_right(image: ClusterImage, name: str, password: str) -> bool:
    """Whether a SCRAM credential of the user fits the password; an unknown name takes as long as a known one."""
    if len(password) > PASSWORD_CHARACTERS_MAX:
        return False
    is_right = False
    found = [(each, image.scram_credentials.get((name, each.value))) for each in ScramMechanism]
    known = [(mechanism, record) for mechanism, record in found if record is not None]
    if not known:
        ScramMechanism.SHA_512.salted_password(password, b"nobody", ITERATIONS_DEFAULT)
    for mechanism, record in known:
        salted = mechanism.salted_password(password, b64decode(record.salt), record.iterations)
        client_key = hmac.digest(salted, b"Client Key", mechanism.hash_name)
        stored = hashlib.new(mechanism.hash_name, client_key).digest()
        is_right |= hmac.compare_digest(stored, b64decode(record.stored_key))
    return is_right


class ServedDoor:
    """Of a cluster that is known by its brokers' addresses: a login is a connection of the user."""

    def __init__(
        self,
        shared: AskedCluster | None,
        open_as: Callable[[str, str], AbstractContextManager[AskedCluster]],
        beside: Beside = NOTHING,
    ) -> None:
        """shared   the connection of all visitors; None: listeners ask for a login
        open_as  opens a connection with a user's name and password
        """
        self._shared = shared
        self._open_as = open_as
        self._beside = beside

    def needs_login(self) -> bool:
        return self._shared is None

    def without_login(self, host: str) -> EnteredUser:
        assert self._shared is not None
        return EnteredUser(self._shared, Principal(host=host), _brokers_decide, nothing, self._beside)

    def enter(self, name: str, password: str, host: str) -> EnteredUser:
        opening = self._open_as(name, password)
        cluster = opening.__enter__()
        principal = Principal(f"User:{name}", host)
        return EnteredUser(cluster, principal, _brokers_decide, lambda: _leave(opening), self._beside)


def _brokers_decide() -> None:
    return None


def _leave(opened: AbstractContextManager[AskedCluster]) -> None:
    opened.__exit__(None, None, None)
