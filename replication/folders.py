"""The names of folders: of replicas below a root, and of topics below a storage domain. Pure."""

from __future__ import annotations

import re

from stratalog.storage.records import TopicPartition

TOPIC_CHARACTERS_MAX = 200
"""Of a topic's name in its folder: file systems allow 255 bytes."""
_TOPIC_FOLDER = re.compile(r"[a-zA-Z0-9._-]+\.[0-9a-f]{32}")


def replica_of(directory: str) -> TopicPartition | None:
    """The replica of a directory: partition 3 of `access-log` for `access-log-3`; None for any other directory."""
    topic, dash, partition = directory.rpartition("-")
    return TopicPartition(topic, int(partition)) if dash and topic and partition.isdecimal() else None


def replica_of_leftover(directory: str) -> TopicPartition | None:
    """The replica whose deletion left this directory (`ObjectStore.leftovers`): partition 3 of `access-log` for
    `access-log-3.0123456789abcdef0123456789abcdef-delete`."""
    return replica_of(directory.rpartition(".")[0])


def topic_folder(topic: str, topic_id: str) -> str:
    """The folder of a topic's tables below a storage domain.

    >>> topic_folder("orders", "0123456789abcdef0123456789abcdef")
    'orders.0123456789abcdef0123456789abcdef'
    """
    return f"{topic[:TOPIC_CHARACTERS_MAX]}.{topic_id}"


def is_topic_folder(name: str) -> bool:
    """Whether a folder has such a name."""
    return _TOPIC_FOLDER.fullmatch(name) is not None
