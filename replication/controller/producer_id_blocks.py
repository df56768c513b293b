"""What is decided for the cluster as a whole: who controls it, which producer ids are given out. Pure.

As in `broker_decisions`: an image in, the records of one commit and an answer out, a refusal is raised.

Producer ids that a broker gives out, from blocks of a thousand (KIP-730). I/O: the metadata log, once a block.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from stratalog.replication.metadata.image import ClusterImage, Result, check_broker_epoch
from stratalog.replication.metadata.log import MetadataLog
from stratalog.replication.metadata.records import PRODUCER_ID_BLOCK, ProducerIdsRecord
from stratalog.storage.errors import StratalogError


def allocate_producer_ids(image: ClusterImage, broker_id: int = -1, broker_epoch: int | None = None) -> Result[range]:
    """A block of fresh producer ids (KIP-730). A client that asks for itself gives neither id nor epoch.

    StaleBrokerEpochError when a broker asks under an epoch that is not its live registration.
    """
    if broker_epoch is not None:
        check_broker_epoch(image, broker_id, broker_epoch)
    first = image.next_producer_id
    record = ProducerIdsRecord(broker_id, first + PRODUCER_ID_BLOCK)
    return Result((record,), range(first, first + PRODUCER_ID_BLOCK))


_LOG = logging.getLogger("stratalog.broker")


class ProducerIds:
    """One broker's. What is left of a block when the broker ends is never given out. Not thread-safe, as its log."""

    def __init__(self, broker_id: int, metadata: MetadataLog) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._block: Iterator[int] = iter(())

    def next(self, broker_epoch: int) -> int | None:
        """An id that nobody else has or will have; None when no block is to be had right now: ask again."""
        given = next(self._block, None)
        if given is not None:
            return given
        try:
            block = self._metadata.propose(lambda image: allocate_producer_ids(image, self._broker_id, broker_epoch))
        except StratalogError as reason:
            _LOG.warning("broker %d got no producer ids: %s", self._broker_id, reason)
            return None
        self._block = iter(block)
        return next(self._block)
