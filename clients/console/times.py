"""Times as a user writes them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from stratalog.storage.errors import InvalidRequestError

TIME_DOC = "milliseconds since 1970, or ISO 8601 as 2026-11-30T14:00+01:00; without a zone it is UTC"


def time_ms(text: str) -> int:
    """Milliseconds since 1970 of a time. InvalidRequestError for anything else.

    >>> time_ms("1700000000000"), time_ms("2023-11-14T22:13:20Z"), time_ms("2023-11-14 23:13:20+01:00")
    (1700000000000, 1700000000000, 1700000000000)
    """
    given = text.strip()
    if given.isascii() and given.isdigit():
        return int(given)
    try:
        found = datetime.fromisoformat(given)
    except ValueError as reason:
        raise InvalidRequestError(f"{text!r} is no time: it is {TIME_DOC}") from reason
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1_000)


def iso_time(ms: int) -> str:
    """A time for the reader, UTC; empty for a negative one, which stands for none.

    >>> iso_time(1700000000000)
    '2023-11-14T22:13:20.000Z'
    """
    if not 0 <= ms < 253_402_300_800_000:
        return "" if ms < 0 else f"{ms} ms"
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration(ms: float) -> str:
    """A length of time in its two largest units; empty for a negative one.

    >>> duration(90_500), duration(250), duration(200_000_000)
    ('1 min 30 s', '250 ms', '2 d 7 h')
    """
    if ms < 0:
        return ""
    if ms < 1_000:
        return f"{ms:.0f} ms"
    seconds = int(ms // 1_000)
    parts = [(seconds // 86_400, "d"), (seconds // 3_600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    first = next(place for place, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)
