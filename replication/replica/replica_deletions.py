"""A broker deletes what it holds of removed topics, and says that it has.

I/O: the tables below the broker's root, and the metadata log. Most are gone already, dropped when the broker heard of
the removal or when it started (`hosted_replicas`); this finds the rest, and reports.
"""

from __future__ import annotations

import logging

from stratalog.replication.controller.topic_deletion import deletions_on, replicas_deleted, replicas_to_delete
from stratalog.replication.metadata.log import MetadataLog
from stratalog.replication.replica.replica_removal import is_of_topic
from stratalog.replication.stores import Stores
from stratalog.storage.clock import Clock, Ids
from stratalog.storage.errors import StaleBrokerEpochError

_LOG = logging.getLogger("stratalog.state.change")


class ReplicaDeletions:
    """One broker's part in the deletion of topics. What fails is tried again by the next `step`."""

    def __init__(
        self, broker_id: int, root: str, stores: Stores, metadata: MetadataLog, clock: Clock, ids: Ids
    ) -> None:
        self._broker_id = broker_id
        self._root = root
        self._stores = stores
        self._metadata = metadata
        self._clock = clock
        self._ids = ids

    def step(self, broker_epoch: int) -> bool:
        """Delete and report what the metadata, as folded so far, asks for; True when there was something. A table that
        is already of a newer topic of the name, of which the metadata does not tell yet, stays.

        To be called after the broker stopped its replicas of removed topics. Raises StoreError. If the registration is
        over by now, the next one reports.
        """
        waiting = deletions_on(self._metadata.image, self._broker_id)
        if not waiting:
            return False
        topics = {deletion.topic for deletion in waiting}
        topic_ids = [deletion.topic_id for deletion in waiting]
        held = self._stores.replicas(self._root)
        for topic_partition in replicas_to_delete(self._metadata.image, self._broker_id, topics, held):
            table = self._stores.table(self._root, topic_partition)
            if is_of_topic(table, topic_ids, self._clock, self._ids):
                table.drop()
                _LOG.info("[Broker %d] deleted replica %s of a removed topic", self._broker_id, topic_partition)
        try:
            self._metadata.propose(lambda image: replicas_deleted(image, self._broker_id, broker_epoch, topic_ids))
        except StaleBrokerEpochError as reason:
            _LOG.info("[Broker %d] %s", self._broker_id, reason)
        return True
