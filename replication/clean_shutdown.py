"""The mark of a clean stop in a broker's root, as Kafka's `.kafka_cleanshutdown`: its tables need no recovery.

I/O: through the root's object store.
"""

from __future__ import annotations

from stratalog.replication.metadata.image import BrokerState
from stratalog.storage.objects.remote import ObjectStore

PATH = "clean-shutdown"


def mark_clean_shutdown(objects: ObjectStore, broker_epoch: int) -> None:
    """After the last write below the root, fetch sessions' too: all of it outlives a power cut from here on."""
    objects.sync_all()
    objects.put(PATH, b"%d" % broker_epoch)
    objects.sync([PATH])


def was_shut_down(objects: ObjectStore, known: BrokerState | None) -> bool:
    """Whether the tables are as the broker's last life left them; it may have had none (`known` is None).

    That it left its ISRs cleanly is not enough: its fetch sessions may have copied until the power was cut. The mark
    is that life's own, so it needs no removal.
    """
    if known is None:
        return True
    return known.clean_shutdown and objects.get_optional(PATH) == b"%d" % known.broker_epoch
