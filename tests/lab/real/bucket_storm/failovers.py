"""How long partitions were without acknowledgements after the broker that led them was struck. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.lab.real.harness.history import ACK, SEND, HistoryEvent


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault of a broker at `at_ms` of the monotonic clock, and the partitions that it led then."""

    at_ms: float
    kind: str
    led: frozenset[int]


def failovers_ms(events: Sequence[HistoryEvent], strikes: Sequence[Strike]) -> Iterator[int]:
    """Of each strike of a leader, the time until all partitions that it led had acknowledged a record that was sent
    after it [ms]. One that never did counts until the last event.

    >>> sent = [HistoryEvent(at_ms, "w", SEND, 0, value=f"w:{at_ms}") for at_ms in (900, 1_100, 2_000)]
    >>> acks = [HistoryEvent(sent_ms + 300, "w", ACK, 0, 7, value=f"w:{sent_ms}") for sent_ms in (900, 1_100)]
    >>> list(failovers_ms([*sent, *acks], [Strike(1_000, "SIGKILL", frozenset({0}))]))
    [400]
    """
    sent_ms = {event.value: event.time_ms for event in events if event.kind == SEND}
    acks = [(event.time_ms, event.partition, sent_ms[event.value]) for event in events if event.kind == ACK]
    last_ms = max((event.time_ms for event in events), default=0)
    for strike in strikes:
        backs = [
            min(
                (at_ms for at_ms, of, begun_ms in acks if of == partition and begun_ms >= strike.at_ms), default=last_ms
            )
            for partition in strike.led
        ]
        if backs:
            yield round(max(backs) - strike.at_ms)
