"""Errors of schema registries, with Confluent's error codes. Pure.

    SchemaRegistryError                  error_code, status; any other answer of a server
      SubjectNotFoundError                 40401
      SchemaVersionNotFoundError           40402
      SchemaNotFoundError                  40403
      CompatibilityNotConfiguredError      40408
      IncompatibleSchemaError              409, 40901; `reasons`
      InvalidSchemaError                   42201
      InvalidSchemaVersionError            42202
      InvalidCompatibilityLevelError       42203
      OperationNotPermittedError           42205
      ReferenceExistsError                 42206
      RegistryUnavailableError             retriable: no answer, or 408, 429, 5xx after all retries

Source: `io.confluent.kafka.schemaregistry.rest.exceptions.Errors`.
"""

from __future__ import annotations

from collections.abc import Sequence

from stratalog.storage.errors import UnknownServerError

RETRIABLE_STATUSES = frozenset({408, 429, 500, 502, 503, 504})


class SchemaRegistryError(UnknownServerError):
    """A refusal of a schema registry. `error_code` is the registry's, `status` HTTP's; 0 where there was none."""

    error_code = 0

    def __init__(self, message: str, error_code: int | None = None, status: int = 0) -> None:
        super().__init__(message)
        self.error_code = type(self).error_code if error_code is None else error_code
        self.status = status or (self.error_code // 100 if self.error_code > 999 else self.error_code)


class SubjectNotFoundError(SchemaRegistryError):
    """The registry has no such subject."""

    error_code = 40401


class SchemaVersionNotFoundError(SchemaRegistryError):
    """The subject has no such version."""

    error_code = 40402


class SchemaNotFoundError(SchemaRegistryError):
    """The registry, or the subject, has no such schema."""

    error_code = 40403


class CompatibilityNotConfiguredError(SchemaRegistryError):
    """The subject has no compatibility level of its own."""

    error_code = 40408


class IncompatibleSchemaError(SchemaRegistryError):
    """The schema breaks the subject's compatibility level; `reasons` says where, as far as known."""

    error_code = 409

    def __init__(
        self, message: str, error_code: int | None = None, status: int = 409, reasons: Sequence[str] = ()
    ) -> None:
        super().__init__(message, error_code, status)
        self.reasons = tuple(reasons)


class InvalidSchemaError(SchemaRegistryError):
    """The text is no schema of its type."""

    error_code = 42201


class InvalidSchemaVersionError(SchemaRegistryError):
    """Not a version: a number from 1 on, or the latest."""

    error_code = 42202


class InvalidCompatibilityLevelError(SchemaRegistryError):
    """Not a level: NONE, BACKWARD, FORWARD, FULL, or one of the last three with _TRANSITIVE."""

    error_code = 42203


class OperationNotPermittedError(SchemaRegistryError):
    """The registry, or the subject, is read-only."""

    error_code = 42205


class ReferenceExistsError(SchemaRegistryError):
    """Another schema refers to the version."""

    error_code = 42206


class RegistryUnavailableError(SchemaRegistryError, retriable=True):
    """The registry did not answer, or answered that it cannot now; every retry failed."""


_KNOWN: tuple[type[SchemaRegistryError], ...] = (
    SubjectNotFoundError,
    SchemaVersionNotFoundError,
    SchemaNotFoundError,
    CompatibilityNotConfiguredError,
    InvalidSchemaError,
    InvalidSchemaVersionError,
    InvalidCompatibilityLevelError,
    OperationNotPermittedError,
    ReferenceExistsError,
)
_BY_CODE = {each.error_code: each for each in _KNOWN} | {409: IncompatibleSchemaError, 40901: IncompatibleSchemaError}


def registry_error(status: int, error_code: int | None, message: str) -> SchemaRegistryError:
    """The error for an answer of a server."""
    code = status if error_code is None else error_code
    if status == 409:
        return IncompatibleSchemaError(message, code, status)
    if code not in _BY_CODE and status in RETRIABLE_STATUSES:
        return RegistryUnavailableError(message, code, status)
    if status in (401, 403):
        message = f"{message} (status {status}): check basic.auth.user.info or bearer.auth.token"
    return _BY_CODE.get(code, SchemaRegistryError)(message, code, status)
