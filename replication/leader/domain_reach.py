"""Which leaders in storage domains are to give way, since their broker cannot write there. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar


class TryingLeader(Protocol):
    """A leader, as far as this rule asks; `answered_ms`: when its store last answered that something was stored."""

    @property
    def domain(self) -> str:
        """The storage domain with its table; "": it is in the broker's root."""

    @property
    def answered_ms(self) -> int | None: ...

    def unanswered_ms(self, now_ms: int) -> int | None:
        """For how long the store has answered no try; None while nothing is tried."""


Leader = TypeVar("Leader", bound=TryingLeader)


def out_of_reach(leaders: Iterable[Leader], now_ms: int, unanswered_ms: int) -> list[Leader]:
    """The leaders in domains whose store has answered nothing for `unanswered_ms` that they tried to store.

    Where it has answered no leader of the domain since, all of that domain, also those that have nothing to store. Of
    leaders 1, 2 and 3 in one domain, 1 waits for 3 s: if 2 stored something 2 s ago, 1 gives way alone; if 2 did so 4 s
    ago, all three do.
    """
    in_domains: dict[str, list[Leader]] = {}
    for replica in leaders:
        if replica.domain:
            in_domains.setdefault(replica.domain, []).append(replica)
    found: list[Leader] = []
    for led in in_domains.values():
        waits = [each for each in led if (each.unanswered_ms(now_ms) or 0) >= unanswered_ms]
        if waits:
            since_ms = now_ms - max(each.unanswered_ms(now_ms) or 0 for each in waits)
            has_answered = any(each.answered_ms is not None and each.answered_ms > since_ms for each in led)
            found += waits if has_answered else led
    return found
