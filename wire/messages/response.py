"""What responses have in common, as dataclasses hold them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from stratalog.storage.errors import StratalogError


@dataclass(frozen=True, slots=True)
class Response:
    """A response whose fields are those of all versions of its API.

    throttle_time_ms  for how long the client is to send nothing; it says nothing about what was done
    """

    throttle_time_ms: int = field(default=0, kw_only=True, compare=False, repr=False)


class ErrorWithText:
    """A response, or a part of one, that has the error's message beside its code."""

    __slots__ = ()
    error: StratalogError | None

    @property
    def error_message(self) -> str | None:
        """None without an error."""
        return None if self.error is None else str(self.error)
