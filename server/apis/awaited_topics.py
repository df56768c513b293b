"""New topics that clients wait for: a broker names one once its leaders lead. I/O: the leaders' progress objects.

A leader that was elected begins its epoch a moment later, and refuses until then what clients send to it, which those
without retries report. In Kafka a broker that answers UNKNOWN_TOPIC_OR_PARTITION for a topic that it has just asked for
knows it when its leaders do.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import StratalogError

LED_MS_MAX = 5_000
"""The longest time for which a new topic is not named: a leader may be down."""


class AwaitedTopics:
    """Topics that were created on demand here, until they are led. Any thread may use it."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._lock = threading.Lock()
        self._deadlines_ms: dict[str, int] = {}
        """By topic id."""

    def add(self, topic_id: str) -> None:
        """A topic was created just now."""
        with self._lock:
            self._deadlines_ms[topic_id] = self._view.clock.monotonic_ms() + LED_MS_MAX

    def awaits(self, image: ClusterImage, name: str) -> bool:
        """Whether a leader of the topic has still to begin."""
        topic_id = image.topic_ids.get(name, "")
        deadline_ms = self._deadlines_ms.get(topic_id)
        if deadline_ms is None:
            return False
        if self._view.clock.monotonic_ms() < deadline_ms and not self._is_led(image, name):
            return True
        with self._lock:
            self._deadlines_ms.pop(topic_id, None)
        return False

    def _is_led(self, image: ClusterImage, name: str) -> bool:
        with suppress(StratalogError):
            self._view.changes.poll()
            led = [named for named in image.partitions_of(name) if image.partitions[named].leader != NO_LEADER]
            return all(self._view.watermarks.published(named, poll=False) is not None for named in led)
        return False
