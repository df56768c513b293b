"""The assignors that a consumer of a classic group may name, by their names in Kafka. Pure.

`partition.assignment.strategy` of Kafka's consumer is range and cooperative-sticky by default, in this order: a group
uses the first one that all members offer.
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

DEFAULT_ASSIGNORS = (RangeAssignor.name, CooperativeStickyAssignor.name)
