"""Whether a broker lives, is ready, and may be restarted: three questions of an orchestrator. Pure.

/livez            the process works: neither storage nor other brokers are asked, since a restart would not help them
/readyz           the broker's own state, not the cluster's health: else one broker that is down made all unready
/safe-to-restart  whether the cluster keeps `min.insync.replicas` without this broker: a probe of its own, since as
                  readiness it would stall the first start of a cluster

Source: Strimzi's `KafkaAvailability.canRoll`, which asks the same before it restarts a pod.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.replication.metrics import RunState
from stratalog.server.metrics.of_image import MinIsrs
from stratalog.storage.records import TopicPartition

REASONS_MAX = 20
"""Reasons that an answer names; it has the number of all."""


@dataclass(frozen=True, slots=True)
class Health:
    """An answer: the question's word, e.g. `ready`, and why not; without reasons it is yes."""

    question: str
    reasons: tuple[str, ...] = ()

    @property
    def is_ok(self) -> bool:
        return not self.reasons

    def to_json(self, *, names_reasons: bool = True) -> bytes:
        """Without `names_reasons` the number of reasons alone, for whoever did not log in: they name topics.

        >>> Health("ready", ("broker 1 is starting",)).to_json()
        b'{"ready": false, "count": 1, "reasons": ["broker 1 is starting"]}\\n'
        """
        body: dict[str, object] = {self.question: self.is_ok}
        if self.reasons:
            body["count"] = len(self.reasons)
            if names_reasons:
                body["reasons"] = list(self.reasons[:REASONS_MAX])
        return f"{json.dumps(body)}\n".encode()


@dataclass(frozen=True, slots=True)
class OwnState:
    """A broker's own state.

    stopped_by  why it has stopped for good, None while it runs
    is_root_dead  whether its own root answers no writes
    failures    of the partitions that it leads by the metadata: why each does not serve, "" where it does; one that is
                not there has not begun
    """

    broker_id: int
    broker_epoch: int
    run_state: RunState
    stopped_by: str | None
    is_root_dead: bool
    failures: Mapping[TopicPartition, str | None]


def is_alive(own: OwnState) -> Health:
    """Whether the process works: it is not to be restarted because a store or another broker is away."""
    return Health("live", () if own.stopped_by is None else (f"broker {own.broker_id} has stopped: {own.stopped_by}",))


def is_ready(own: OwnState, image: ClusterImage) -> Health:
    """Whether the broker is registered and not fenced, serves what it leads, is in the ISR of what it follows, and is
    not about to leave."""
    return Health("ready", tuple(_unready(own, image)))


def _unready(own: OwnState, image: ClusterImage) -> Iterator[str]:
    broker = f"broker {own.broker_id}"
    if own.run_state != RunState.RUNNING:
        yield f"{broker} is {own.run_state.name.lower().replace('_', ' ')}"
        return
    if not image.is_current(own.broker_id, own.broker_epoch):
        yield f"{broker} is fenced, or its registration of epoch {own.broker_epoch} is over"
        return
    if own.is_root_dead:
        yield f"{broker}: its own root answers no writes"
    for named, state in image.partitions.items():
        if own.broker_id not in state.replicas:
            continue
        if state.leader == own.broker_id:
            failure = own.failures.get(named)
            if failure is None:
                yield f"{named}: leader epoch {state.leader_epoch} has not begun"
            elif failure:
                yield f"{named}: {failure}"
        elif state.leader != NO_LEADER and own.broker_id not in (*state.isr, *state.adding):
            yield f"{named}: {broker} is not in the ISR {list(state.isr)} of leader {state.leader}"


def is_safe_to_restart(own: OwnState, image: ClusterImage) -> Health:
    """Whether no partition with a replica here falls below `min.insync.replicas`, or stays there, without it.

    A partition with no more replicas than `min.insync.replicas` has never room for a restart, and does not count.
    """
    question = "safeToRestart"
    if not image.is_current(own.broker_id, own.broker_epoch):
        return Health(question, (f"broker {own.broker_id} is not registered: it does not know the ISRs",))
    return Health(question, tuple(_at_risk(own.broker_id, image)))


def _at_risk(broker_id: int, image: ClusterImage) -> Iterable[str]:
    min_isrs = MinIsrs(image)
    for named, state in image.partitions.items():
        min_isr = min_isrs.of(state)
        if broker_id not in state.replicas or len(state.replicas) <= min_isr:
            continue
        left = len(state.isr) - (broker_id in state.isr)
        if left < min_isr:
            yield f"{named}: without broker {broker_id} its ISR {list(state.isr)} has {left} < {min_isr} replicas"
