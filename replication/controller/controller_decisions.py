"""What is decided for the cluster as a whole: who controls it, which producer ids are given out. Pure.

As in `broker_decisions`: an image in, the records of one commit and an answer out, a refusal is raised.
"""

from __future__ import annotations

from stratalog.replication.controller.brokers import check_broker_epoch
from stratalog.replication.metadata.image import (
    PRODUCER_ID_BLOCK,
    ClusterImage,
    ControllerRecord,
    ProducerIdsRecord,
    Result,
)
from stratalog.storage.errors import StaleControllerEpochError


def elect_controller(image: ClusterImage, broker_id: int, controller_epoch: int) -> Result[int]:
    """Broker `broker_id` becomes the controller of `controller_epoch`, which its epoch start has reserved.

    StaleControllerEpochError when that epoch or a newer one has a controller already. An election that it
    won already is answered again without a record.
    """
    if (image.controller_id, image.controller_epoch) == (broker_id, controller_epoch):
        return Result((), controller_epoch)
    if image.controller_epoch >= controller_epoch:
        raise StaleControllerEpochError(
            f"broker {broker_id} stood for controller epoch {controller_epoch}, but broker {image.controller_id} "
            f"is the controller of epoch {image.controller_epoch}"
        )
    return Result((ControllerRecord(broker_id, controller_epoch),), controller_epoch)


def allocate_producer_ids(image: ClusterImage, broker_id: int = -1, broker_epoch: int | None = None) -> Result[range]:
    """A block of fresh producer ids (KIP-730). A client that asks for itself gives neither id nor epoch.

    StaleBrokerEpochError when a broker asks under an epoch that is not its live registration.
    """
    if broker_epoch is not None:
        check_broker_epoch(image, broker_id, broker_epoch)
    first = image.next_producer_id
    record = ProducerIdsRecord(broker_id, first + PRODUCER_ID_BLOCK)
    return Result((record,), range(first, first + PRODUCER_ID_BLOCK))
