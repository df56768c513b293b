"""Producer ids, allocated to brokers in blocks of a thousand (KIP-730). I/O: the metadata log, once a block."""

from __future__ import annotations

from collections.abc import Iterator

from stratalog.replication.metadata.image import ClusterImage, Result, check_broker_epoch
from stratalog.replication.metadata.log import MetadataLog
from stratalog.replication.metadata.records import ProducerIdsRecord
from stratalog.storage.errors import StratalogError
from stratalog.storage.log_lines import line_logger

PRODUCER_ID_BLOCK = 1000

_LOG = line_logger("stratalog.broker")


def allocate_producer_ids(image: ClusterImage, broker_id: int = -1, broker_epoch: int | None = None) -> Result[range]:
    """A block of unused producer ids. A client that allocates one for itself has neither broker id nor epoch.

    StaleBrokerEpochError when `broker_epoch` is not the broker's live registration.
    """
    if broker_epoch is not None:
        check_broker_epoch(image, broker_id, broker_epoch)
    first = image.next_producer_id
    record = ProducerIdsRecord(broker_id, first + PRODUCER_ID_BLOCK)
    return Result((record,), range(first, first + PRODUCER_ID_BLOCK))


class ProducerIds:
    """The producer ids of one broker. The rest of its last block is never used. Not thread-safe, like the log."""

    def __init__(self, broker_id: int, metadata: MetadataLog) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._block: Iterator[int] = iter(())

    def next(self, broker_epoch: int) -> int | None:
        """An unused id; None when no block can be allocated now: try again."""
        producer_id = next(self._block, None)
        if producer_id is None:
            try:
                block = self._metadata.propose(
                    lambda image: allocate_producer_ids(image, self._broker_id, broker_epoch)
                )
            except StratalogError as reason:
                _LOG.warning("broker %d got no producer ids: %s", self._broker_id, reason)
                return None
            self._block = iter(block)
            producer_id = next(self._block)
        return producer_id
