"""What a simulated store does wrong, and when it throttles. Pure: time and chance are arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from enum import Enum
from fnmatch import fnmatchcase
from typing import Self

from tests.stores.cloud.http1 import Head, Message
from tests.stores.cloud.request_kinds import StoreRequest

_ISO = re.compile(rb"(?<=<LastModified>)[^<]+(?=</LastModified>)")
_RFC = re.compile(rb"(?<=<Last-Modified>)[^<]+(?=</Last-Modified>)")
_ISO_FORMAT = "%Y-%m-%dT%H:%M:%S"


class CloudFault(Enum):
    """The faults of a request."""

    SLOW_DOWN = "refused with 503 SlowDown, not applied"
    DENY = "refused with 403 AccessDenied, not applied"
    LOSE_REQUEST = "the connection ends, nothing was applied"
    LOSE_ANSWER = "applied, then the connection ends without an answer"
    FAIL_AFTER = "applied, then answered with 500: a retry finds the object of its first try"
    DOUBLE = "applied twice, as by a network that repeats it; the second answer is returned"
    LATE = "applied after `after_ms`, or once late requests are released: its client may have given up"


@dataclass(slots=True)
class FaultRule:
    """Applies to requests of these kinds whose key fits.

    kinds     of `request_kinds.KINDS`; empty: all
    key       a pattern of file names, whose * spans folders, too
    times     so many more requests; None: all
    share     of the requests that fit, the part that meets the fault
    after_ms  of LATE
    """

    fault: CloudFault
    kinds: frozenset[str] = frozenset()
    key: str = "*"
    times: int | None = 1
    share: float = 1.0
    after_ms: float = 60_000.0

    def is_met(self, request: StoreRequest, chance: float) -> bool:
        """Whether the next request meets it. `chance` is drawn from [0, 1)."""
        fits = (not self.kinds or request.kind in self.kinds) and fnmatchcase(request.key, self.key)
        return fits and self.times != 0 and chance < self.share

    def to_json(self) -> dict[str, object]:
        return {
            "fault": self.fault.name,
            "kinds": sorted(self.kinds),
            "key": self.key,
            "times": self.times,
            "share": self.share,
            "after_ms": self.after_ms,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, object]) -> Self:
        kinds = body["kinds"]
        assert isinstance(kinds, list)
        times = body["times"]
        return cls(
            CloudFault[str(body["fault"])],
            frozenset(map(str, kinds)),
            str(body["key"]),
            None if times is None else int(str(times)),
            float(str(body["share"])),
            float(str(body["after_ms"])),
        )


def met_rule(rules: Iterable[FaultRule], request: StoreRequest, chance: float) -> FaultRule | None:
    """The first rule that a request meets; its `times` count this one."""
    for rule in rules:
        if rule.is_met(request, chance):
            if rule.times is not None:
                rule.times -= 1
            return rule
    return None


@dataclass(slots=True)
class Throttle:
    """Token buckets of a second's requests, one for the reads and one for the writes of each prefix.

    >>> throttle = Throttle(writes_per_s=2, reads_per_s=0)
    >>> put = StoreRequest("put", "a/b")
    >>> [throttle.admits(put, "a", now_s) for now_s in (0.0, 0.0, 0.0, 0.5)]
    [True, True, False, True]
    """

    writes_per_s: float
    reads_per_s: float
    _left: dict[tuple[str, bool], tuple[float, float]] = field(default_factory=dict)
    """By prefix and whether it is of reads: requests that are left, and as of when."""

    def admits(self, request: StoreRequest, prefix: str, now_s: float) -> bool:
        """Whether the prefix takes another request; it counts then. A rate of 0 is no bound."""
        rate = self.reads_per_s if request.is_read else self.writes_per_s
        if not rate:
            return True
        key, most = (prefix, request.is_read), max(1.0, rate)
        left, since_s = self._left.get(key, (most, now_s))
        left = min(most, left + (now_s - since_s) * rate)
        self._left[key] = (left - 1 if left >= 1 else left), now_s
        return left >= 1


def with_clock_off(answer: Message, off_s: float) -> bytes:
    """The answer as a server sends it whose clock is off: Date, Last-Modified, and the times of a listing."""
    if not off_s:
        return answer.raw
    off = timedelta(seconds=off_s)

    def shifted_iso(found: re.Match[bytes]) -> bytes:
        moment = datetime.strptime(found[0].decode()[:19], _ISO_FORMAT).replace(tzinfo=UTC) + off
        return (moment.strftime(_ISO_FORMAT) + found[0].decode()[19:]).encode()

    def shifted_rfc(text: str) -> str:
        return format_datetime((parsedate_to_datetime(text) + off).astimezone(UTC), usegmt=True)

    head = answer.head
    changed = {name: shifted_rfc(head.get(name)) for name in ("date", "last-modified") if head.get(name)}
    body = _RFC.sub(lambda found: shifted_rfc(found[0].decode()).encode(), _ISO.sub(shifted_iso, answer.body))
    head = head.with_fields(**changed)
    if body == answer.body:
        return head.to_bytes() + answer.raw[answer.raw.index(b"\r\n\r\n") + 4 :]
    fields = [each for each in head.fields if each[0].lower() not in ("content-length", "transfer-encoding")]
    return Head(head.parts, (*fields, ("Content-Length", str(len(body))))).to_bytes() + body


def refusal(status: int, code: str) -> bytes:
    """An error's answer as S3 sends it; Azure's clients read the status."""
    reasons = {403: "Forbidden", 500: "Internal Server Error", 503: "Service Unavailable"}
    body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
    fields = (("Content-Type", "application/xml"), ("Content-Length", str(len(body))))
    return Head(("HTTP/1.1", str(status), reasons[status]), fields).to_bytes() + body
