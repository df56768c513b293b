"""SCRAM credentials: what users' passwords are checked against, as records of the metadata log. Pure.

The log has a salt and two keys of each user and mechanism, from which neither the password nor what a client needs to
log in can be computed. Clients salt the password themselves, so that it does not leave them (KIP-554).
Source: Kafka's `ScramControlManager`, `ScramImage.describe`, `ScramFormatter`; RFC 5802.
"""

from __future__ import annotations

import hashlib
import hmac
import stringprep
import unicodedata
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError

ITERATIONS_MIN = 4_096
"""The fewest iterations of both mechanisms (`ScramMechanism.minIterations`)."""
ITERATIONS_MAX = 16_384
ITERATIONS_DEFAULT = 4_096
"""Number of iterations where a tool's caller names none."""


class ScramMechanism(StrEnum):
    """Kafka's `ScramMechanism`."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def code(self) -> int:
        """Its number in requests: 1 or 2."""
        return list(ScramMechanism).index(self) + 1

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @staticmethod
    def of_code(code: int) -> ScramMechanism | None:
        return next((each for each in ScramMechanism if each.code == code), None)

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """`Hi(password, salt, iterations)` of RFC 5802, as Kafka computes it: without SASLprep."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """The credential of a user under a mechanism, by its code, is to be removed."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A user's credential is to be added or replaced."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


@dataclass(frozen=True, slots=True)
class ScramDescription:
    """The credentials of one user: (mechanism, iterations), or why there are none."""

    user: str
    credentials: tuple[tuple[ScramMechanism, int], ...] = ()
    error: StratalogError | None = None


def alter_credentials(
    image: ClusterImage, deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]
) -> Result[dict[str, StratalogError | None]]:
    """Remove, add and replace credentials; the answer is the error of each user, None for one that was altered.

    Errors: UnacceptableCredentialError, UnsupportedSaslMechanismError, ResourceNotFoundError; DuplicateResourceError
    for a user that is named twice, of whom then nothing is altered.
    """
    accepted: dict[str, ScramDeletion | ScramUpsertion] = {}
    refused: dict[str, StratalogError | None] = {}
    changes: list[ScramDeletion | ScramUpsertion] = [*deletions, *upsertions]
    for each in changes:
        if each.user in refused:
            continue
        if accepted.pop(each.user, None) is not None:
            error: StratalogError | None = errors.DuplicateResourceError(
                "A user credential cannot be altered twice in the same request"
            )
        else:
            error = _error_of(image, each)
        if error is None:
            accepted[each.user] = each
        else:
            refused[each.user] = error
    records = tuple(_record(each) for each in accepted.values())
    return Result(records, {**dict.fromkeys(accepted), **refused})


def _error_of(image: ClusterImage, change: ScramDeletion | ScramUpsertion) -> StratalogError | None:
    mechanism = ScramMechanism.of_code(change.mechanism)
    if not change.user:
        return errors.UnacceptableCredentialError("Username must not be empty")
    if mechanism is None:
        return errors.UnsupportedSaslMechanismError("Unknown SCRAM mechanism")
    if isinstance(change, ScramDeletion):
        if (change.user, mechanism.value) in image.scram_credentials:
            return None
        return errors.ResourceNotFoundError("Attempt to delete a user credential that does not exist")
    if change.iterations < ITERATIONS_MIN:
        return errors.UnacceptableCredentialError("Too few iterations")
    if change.iterations > ITERATIONS_MAX:
        return errors.UnacceptableCredentialError("Too many iterations")
    if not _is_prepared(change.user):
        return errors.UnacceptableCredentialError("Username must be in the form that logins have (SASLprep, NFKC)")
    if not change.salted_password:
        return errors.UnacceptableCredentialError("The salted password must not be empty")
    return None


def _is_prepared(name: str) -> bool:
    """Whether SASLprep (RFC 4013) leaves a name as it is: names are looked up in that form, and no other is found."""
    if unicodedata.ucd_3_2_0.normalize("NFKC", name) != name or any(f(each) for f in _NOT_PREPARED for each in name):
        return False
    if stringprep.in_table_d1(name[0]):
        return stringprep.in_table_d1(name[-1]) and not any(map(stringprep.in_table_d2, name))
    return not any(map(stringprep.in_table_d1, name))


_NOT_PREPARED = (
    stringprep.in_table_a1,
    stringprep.in_table_b1,
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)
"""Characters that SASLprep removes, replaces or forbids."""


def _record(change: ScramDeletion | ScramUpsertion) -> MetadataRecord:
    mechanism = ScramMechanism.of_code(change.mechanism)
    assert mechanism is not None
    if isinstance(change, ScramDeletion):
        return RemoveUserScramCredentialRecord(change.user, mechanism.value)
    client_key = hmac.digest(change.salted_password, b"Client Key", mechanism.hash_name)
    return UserScramCredentialRecord(
        change.user,
        mechanism.value,
        b64encode(change.salt).decode(),
        b64encode(hashlib.new(mechanism.hash_name, client_key).digest()).decode(),
        b64encode(hmac.digest(change.salted_password, b"Server Key", mechanism.hash_name)).decode(),
        change.iterations,
    )


def describe_credentials(image: ClusterImage, users: Iterable[str] | None = None) -> list[ScramDescription]:
    """The credentials of these users; of all users without any named."""
    asked = list(users or ())
    if not asked:
        asked = sorted({user for user, _ in image.scram_credentials})
    return [_described(image, user, asked.count(user) > 1) for user in dict.fromkeys(asked)]


def _described(image: ClusterImage, user: str, is_twice: bool) -> ScramDescription:
    if is_twice:
        reason = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return ScramDescription(user, error=errors.DuplicateResourceError(reason))
    records = [(each, image.scram_credentials.get((user, each.value))) for each in ScramMechanism]
    found = tuple((mechanism, record.iterations) for mechanism, record in records if record is not None)
    if not found:
        reason = f"Attempt to describe a user credential that does not exist: {user}"
        return ScramDescription(user, error=errors.ResourceNotFoundError(reason))
    return ScramDescription(user, found)
