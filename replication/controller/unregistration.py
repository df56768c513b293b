"""UnregisterBroker: the cluster forgets a broker that was stopped for good. Pure.

Kafka forgets any broker at once, also one that lives or holds replicas, and leaves those with a replica that will never
return. Here both are refused, with what to do first: stop it, and reassign its replicas, for which it need not be live.
Deletions of topics no longer wait for it. Its epoch stays known, so that the next registration, its own included, has a
larger one.
Source: `ReplicationControlManager.unregisterBroker`.
"""

from __future__ import annotations

from dataclasses import replace

from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import MetadataRecord, UnregisterBrokerRecord
from stratalog.storage.errors import BrokerIdNotRegisteredError, InvalidRequestError

NAMED_MAX = 5
"""Partitions that a refusal names."""


def unregister_broker(image: ClusterImage, broker_id: int) -> Result[None]:
    """Forget a fenced broker without replicas.

    BrokerIdNotRegisteredError for one that is not known, InvalidRequestError for one that is live or holds replicas.
    """
    known = image.brokers.get(broker_id)
    if known is None:
        raise BrokerIdNotRegisteredError(f"Broker ID {broker_id} is not currently registered.")
    if not known.fenced:
        raise InvalidRequestError(
            f"broker {broker_id} is live under broker epoch {known.broker_epoch}: stop it before it is unregistered"
        )
    held = sorted(named for named, state in image.partitions.items() if broker_id in state.replicas)
    if held:
        named = ", ".join(map(str, held[:NAMED_MAX])) + (", …" if len(held) > NAMED_MAX else "")
        raise InvalidRequestError(
            f"broker {broker_id} has replicas of {len(held)} partitions ({named}): reassign them to other brokers first"
        )
    records: list[MetadataRecord] = [UnregisterBrokerRecord(broker_id, known.broker_epoch)]
    records += [
        replace(deletion, brokers=tuple(each for each in deletion.brokers if each != broker_id))
        for deletion in image.deletions.values()
        if broker_id in deletion.brokers
    ]
    return Result(tuple(records), None)
