"""How far a store is from this process, and what follows from that for who calls it. Pure.

Each store states its distance once. Whether a place's writes are reported is another question, which its
`WatchedPlace` answers: files on a network mount are near, and have to be polled. What only some stores can do at all
(`durable_on_answer`, `file_path` and the other abilities of `ObjectStore`) does not follow from the distance either.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Distance:
    """NEAR or FAR.

    requests_per_call  requests to a service that each call makes: they are paid, and take as long as a network needs
    calls_max          so many calls that do not depend on each other are made at a time; 1: one after the other
    """

    requests_per_call: int
    calls_max: int

    @property
    def is_far(self) -> bool:
        """Whether a call is a request to a service: polls are paid then, and several calls take no longer than one."""
        return self.requests_per_call > 0


NEAR = Distance(requests_per_call=0, calls_max=1)
"""Files of this machine, or memory: a call answers at once."""
FAR = Distance(requests_per_call=1, calls_max=32)
"""An object store."""


def farthest(distances: Iterable[Distance]) -> Distance:
    """The distance of work that calls all of these stores; NEAR where there is none.

    >>> farthest([NEAR, FAR]) is FAR, farthest([]) is NEAR
    (True, True)
    """
    return max(distances, key=lambda each: each.requests_per_call, default=NEAR)
