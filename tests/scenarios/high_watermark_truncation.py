"""Kafka before 0.11, for comparison: a follower truncates to the high watermark it knows (KIP-101).

The product has no such switch. A follower learns the high watermark with each fetch, thus one fetch late; on
becoming a follower it cuts its log there at once, without a request to the leader, and copies from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from stratalog.replication.follower.replica import FollowedReplica, state_epoch_first
from tests.scenarios.scenario_cluster import ScenarioCluster


@contextmanager
def truncation_by_high_watermark(sim: ScenarioCluster) -> Iterator[None]:
    """Epochs still elect and fence, but they no longer decide where logs are cut."""

    def key_of(replica: FollowedReplica) -> tuple[int, object]:
        return sim.broker_of(replica.own.table._disk), replica.state.topic_partition  # type: ignore[attr-defined]

    def start(replica: FollowedReplica) -> bool:
        replica.own.exists_or_create(replica.topic_id)
        if replica.own.leader_epoch >= replica.leader_epoch:
            replica.has_started = replica.own.leader_epoch == replica.leader_epoch
            return replica.has_started
        known = sim.known_high_watermarks.get(key_of(replica), 0)  # type: ignore[arg-type]
        replica.has_started = state_epoch_first(replica.own, replica.leader_epoch, max(known, 0))
        return True

    original_copy = FollowedReplica._copy

    def copy(replica: FollowedReplica, max_bytes: int) -> bool:
        history = sim.invariants.history(replica.state.topic_partition)
        known = history.high_watermarks.get(replica.leader_epoch) if history is not None else None
        if known is not None and sim.hosts[replica.state.leader].broker is not None:  # a dead broker publishes nothing
            sim.known_high_watermarks[key_of(replica)] = known  # type: ignore[index]
        return original_copy(replica, max_bytes)

    with (
        patch.object(FollowedReplica, "_start", start),
        patch.object(FollowedReplica, "_copy", copy),
        patch("stratalog.storage.log.copy.check_agreement", lambda own, leader: None),
    ):
        yield
