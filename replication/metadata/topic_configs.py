"""The configs of topics as typed values: their overrides over the cluster's defaults, parsed once. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from stratalog.replication.metadata.image import ClusterImage
from stratalog.storage.topic_config import LogConfig


class TopicConfigs:
    """One part's own; `defaults` is what conf/topics.toml says, by Kafka's names."""

    def __init__(self, defaults: Mapping[str, object]) -> None:
        self._defaults = dict(defaults)
        self._known: dict[str, tuple[Mapping[str, str], LogConfig]] = {}

    def of(self, topic: str, image: ClusterImage) -> LogConfig:
        """The topic's configs as the image has them: the same object until one changes."""
        overrides = image.topic_config(topic)
        known = self._known.get(topic)
        if known is None or known[0] != overrides:
            config = LogConfig.from_properties({**self._defaults, **overrides})
            known = self._known[topic] = (dict(overrides), config)
        return known[1]

    def forget(self, topic: str) -> None:
        """The topic is of no interest any more."""
        self._known.pop(topic, None)
