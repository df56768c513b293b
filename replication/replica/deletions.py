"""One broker's part in the deletion of topics.

I/O: the tables below the broker's root and in storage domains, and the metadata log.
"""

from __future__ import annotations

from functools import partial

from stratalog.replication.controller.topic_deletion import deletions_on, replicas_deleted, replicas_to_delete
from stratalog.replication.metadata.log import MetadataLog
from stratalog.replication.metadata.records import TopicDeletionRecord
from stratalog.replication.metadata.storage_domains import domain_of, topic_root
from stratalog.replication.replica.left_tables import LeftTables
from stratalog.replication.replica.removal import is_of_topic
from stratalog.replication.stores import Ports
from stratalog.storage import errors
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import TopicPartition

_LOG = line_logger("stratalog.state.change")


class ReplicaDeletions:
    """One broker's part in the deletion of topics. The next `step` retries what fails.

    In a storage domain each of the topic's brokers deletes all that is there of it: after the last one, which has
    stopped its replicas before, nobody writes there.

    left  what partitions that go on have left in storage domains
    """

    def __init__(self, broker_id: int, root: str, ports: Ports, metadata: MetadataLog) -> None:
        self._broker_id = broker_id
        self._root = root
        self._ports = ports
        self._metadata = metadata
        self.left = LeftTables(broker_id, ports, metadata)

    def step(self, broker_epoch: int) -> bool:
        """Delete and report what the metadata, as folded so far, asks for; True when there was something. A table
        of a newer topic of the name, which the metadata does not show yet, stays.

        The broker calls it after it has stopped its replicas of removed topics. Raises StoreError. If the registration
        is over, the next one reports.
        """
        waiting = deletions_on(self._metadata.image, self._broker_id)
        if not waiting:
            return False
        topics = {deletion.topic for deletion in waiting}
        topic_ids = [deletion.topic_id for deletion in waiting]
        held = self._ports.stores.replicas(self._root)
        for topic_partition in replicas_to_delete(self._metadata.image, self._broker_id, topics, held):
            table = self._ports.stores.table(self._root, topic_partition)
            if table.drop(partial(is_of_topic, table, topic_ids, self._ports.clock, self._ports.ids)):
                _LOG.info("[Broker %d] deleted replica %s of a removed topic", self._broker_id, topic_partition)
        for deletion in waiting:
            self._delete_in_domains(deletion)
        try:
            self._metadata.propose(lambda image: replicas_deleted(image, self._broker_id, broker_epoch, topic_ids))
        except errors.StaleBrokerEpochError as reason:
            _LOG.info("[Broker %d] %s", self._broker_id, reason)
        return True

    def _delete_in_domains(self, deletion: TopicDeletionRecord) -> None:
        """Delete the topic's tables in storage domains. The folder has the topic's id: nobody makes it again."""
        for name in deletion.domains:
            domain = domain_of(self._metadata.image, name)
            for partition in range(deletion.partitions):
                topic_partition = TopicPartition(deletion.topic, partition)
                table = self._ports.stores.table(topic_root(domain, deletion.topic, deletion.topic_id), topic_partition)
                table.drop()
            _LOG.info("[Broker %d] deleted topic %s of id %s in the storage domain %s",
                      self._broker_id, deletion.topic, deletion.topic_id, name)  # fmt: skip
