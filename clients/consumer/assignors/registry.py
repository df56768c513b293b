"""The assignors of `partition.assignment.strategy`, by Kafka's names. Pure.

A group uses the first one that all members have.
"""

from __future__ import annotations

from collections.abc import Mapping

from stratalog.clients.consumer.assignors.assignor import Assignor
from stratalog.clients.consumer.assignors.range import RangeAssignor, RoundRobinAssignor
from stratalog.clients.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

ASSIGNORS: Mapping[str, Assignor] = {
    assignor.name: assignor
    for assignor in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}
"""`range`, `roundrobin`, `sticky` and `cooperative-sticky`."""
