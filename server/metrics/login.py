"""The login of a broker's metrics port where other machines reach it: HTTP's basic authentication. Pure.

The user is the one of the settings, or one of the cluster's with SCRAM credentials.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode
from binascii import Error as BinasciiError
from collections.abc import Callable

from stratalog.replication.config import BrokerConfig
from stratalog.replication.metadata.records import UserScramCredentialRecord
from stratalog.replication.metadata.scram import ScramMechanism
from stratalog.storage.errors import InvalidConfigError

BASIC = "basic"
CHALLENGE = 'Basic realm="stratalog", charset="UTF-8"'

FindScramCredential = Callable[[str, str], UserScramCredentialRecord | None]
"""The credential of a user and a mechanism's name."""


class MetricsLogin:
    """Checks passwords. A user of the settings is the only one."""

    def __init__(self, user: str, password: str, find: FindScramCredential) -> None:
        """`password`: "" for users with SCRAM credentials, which `find` gives."""
        self._user = user
        self._password = password
        self._find = find
        self._known: tuple[str, bytes, str] | None = None
        """The last user with SCRAM that was let in: name, digest of the password, stored key. Its password is not
        derived again at each scrape."""

    def allows(self, header: str) -> bool:
        """Whether an `Authorization` header has the password of a user.

        >>> MetricsLogin("bob", "secret", lambda _user, _mechanism: None).allows("Basic Ym9iOnNlY3JldA==")
        True
        """
        scheme, _, encoded = header.partition(" ")
        if scheme.lower() != BASIC:
            return False
        try:
            user, colon, password = b64decode(encoded.strip(), validate=True).decode().partition(":")
        except (BinasciiError, UnicodeDecodeError, ValueError):
            return False
        if not colon:
            return False
        if self._password:
            is_user = hmac.compare_digest(user.encode(), self._user.encode())
            return hmac.compare_digest(password.encode(), self._password.encode()) and is_user
        return any(self._has_scram(user, password, mechanism) for mechanism in ScramMechanism)

    def _has_scram(self, user: str, password: str, mechanism: ScramMechanism) -> bool:
        found = self._find(user, mechanism)
        if found is None:
            return False
        salt = b64decode(found.salt)
        digest = hashlib.sha256(salt + password.encode()).digest()
        if self._known == (user, digest, found.stored_key):
            return True
        salted = mechanism.salted_password(password, salt, found.iterations)
        client_key = hmac.digest(salted, b"Client Key", mechanism.hash_name)
        stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
        if not hmac.compare_digest(stored_key, b64decode(found.stored_key)):
            return False
        self._known = (user, digest, found.stored_key)
        return True


def metrics_login(config: BrokerConfig, find: FindScramCredential, *, is_loopback: bool) -> MetricsLogin | None:
    """The login that the settings ask for; None on loopback, and where they say so.

    InvalidConfigError when other machines reach the port and nobody could log in.
    """
    if is_loopback or config.stratalog_metrics_authentication != BASIC:
        return None
    password = config.stratalog_metrics_password
    has_users = any(each.startswith("SCRAM-") for each in config.sasl_enabled_mechanisms)
    if not password and not has_users:
        raise InvalidConfigError(
            f"stratalog.metrics.host={config.stratalog_metrics_host} is open to other machines. Set "
            "stratalog.metrics.password, or SCRAM in sasl.enabled.mechanisms, or, where the network lets nobody else "
            "in, stratalog.metrics.authentication=none"
        )
    return MetricsLogin(config.stratalog_metrics_user, password, find)
