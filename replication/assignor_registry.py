"""The assignors that a consumer of a classic group may name, by their names in Kafka. Pure.

`partition.assignment.strategy` of Kafka's consumer is range and cooperative-sticky by default, in this order: a group
uses the first one that all members offer.
"""

from __future__ import annotations

from collections.abc import Mapping

from replication.assignors import Assignor
from replication.range_assignor import RangeAssignor, RoundRobinAssignor
from replication.sticky_assignor import CooperativeStickyAssignor, StickyAssignor

ASSIGNORS: Mapping[str, Assignor] = {
    assignor.name: assignor
    for assignor in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}
"""`range`, `roundrobin`, `sticky` and `cooperative-sticky`."""

DEFAULT_ASSIGNORS = (RangeAssignor.name, CooperativeStickyAssignor.name)
