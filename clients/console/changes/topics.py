"""Topics are created, altered, grown and deleted; a record is produced. I/O: the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from stratalog.clients.console.asker import Asker
from stratalog.clients.console.changes.change import ClusterChange, Preview, PreviewLine
from stratalog.clients.console.question import Parameter
from stratalog.clients.producer.producer import Producer
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.server.admin.admin import NewTopic, TopicDescription
from stratalog.storage.errors import (
    InvalidPartitionsError,
    InvalidRequestError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig

PRODUCE_S = 10
DEFAULT = -1


def _topic_page(values: Mapping[str, object]) -> str:
    return "/topic?" + urlencode({"topic": str(values["topic"])})


def _described(asker: Asker, topic: str) -> TopicDescription:
    asker.check_topic(topic)
    asker.cluster.view.refresh()
    if topic not in asker.cluster.view.topics():
        raise UnknownTopicOrPartitionError(f"there is no topic {topic}")
    return asker.cluster.admin.describe_topics([topic])[topic]


def configs_of(text: str) -> dict[str, str]:
    """Configs of a text with one `name=value` a line. InvalidRequestError.

    >>> configs_of("retention.ms = 60000\\ncleanup.policy=compact")
    {'retention.ms': '60000', 'cleanup.policy': 'compact'}
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, mark, value = (part.strip() for part in line.partition("="))
        if not line.strip():
            continue
        if not mark or not name:
            raise InvalidRequestError(f"{line.strip()!r} is not name=value")
        found[name] = value
    return found


def _may_create(asker: Asker, topic: str) -> None:
    if not asker.may(Operation.CREATE, ResourceType.CLUSTER):
        asker.check_topic(topic, Operation.CREATE)


def preview_create(asker: Asker, topic: str, partitions: int, replication_factor: int, configs: str) -> Preview:
    _may_create(asker, topic)
    asker.cluster.view.refresh()
    if topic in asker.cluster.view.topics():
        raise TopicAlreadyExistsError(f"Topic '{topic}' already exists.")
    given = configs_of(configs)
    LogConfig.validated(given)
    default = "the cluster's default"
    lines = [
        PreviewLine(f"topic {topic}", "", "created"),
        PreviewLine("partitions", "", default if partitions == DEFAULT else str(partitions)),
        PreviewLine("replicas", "", default if replication_factor == DEFAULT else str(replication_factor)),
        *(PreviewLine(name, "", value) for name, value in given.items()),
    ]
    live = len(asker.cluster.view.image.live_brokers())
    warnings = []
    if replication_factor > live:
        warnings.append(f"{replication_factor} replicas need as many brokers, and {live} are up: it will be refused.")
    if replication_factor == 1:
        warnings.append("With one replica the topic is offline whenever its broker is.")
    return Preview(lines, warnings)


def create(asker: Asker, topic: str, partitions: int, replication_factor: int, configs: str) -> str:
    _may_create(asker, topic)
    new = NewTopic(topic, partitions, replication_factor, configs_of(configs))
    asker.cluster.admin.create_topics([new])
    return f"Topic {topic} was created."


def preview_delete(asker: Asker, topic: str) -> Preview:
    asker.check_topic(topic, Operation.DELETE)
    described = _described(asker, topic)
    marks = asker.cluster.view.watermarks.published_now([each.topic_partition for each in described.partitions])
    records = sum(each.high_watermark - each.log_start_offset for each in marks.values() if each is not None)
    lines = [
        PreviewLine(f"topic {topic}", f"{len(described.partitions)} partitions", ""),
        PreviewLine("offsets with records", str(records), ""),
    ]
    return Preview(lines, ["All records of the topic are lost. No command brings them back."])


def delete(asker: Asker, topic: str) -> str:
    asker.check_topic(topic, Operation.DELETE)
    _described(asker, topic)
    asker.cluster.admin.delete_topics([topic])
    return f"Topic {topic} is deleted; its files follow."


def preview_alter(asker: Asker, topic: str, name: str, value: str, remove: bool) -> Preview:
    asker.check_topic(topic, Operation.ALTER_CONFIGS)
    _described(asker, topic)
    found = {each.name: each for each in asker.cluster.admin.topic_configs(topic)}
    if name not in found:
        raise InvalidRequestError(f"topics have no config {name}")
    before = found[name]
    if remove:
        after = next((one.value for one in before.synonyms if one.source != "DYNAMIC_TOPIC_CONFIG"), None)
        return Preview([PreviewLine(name, f"{before.text} ({before.source})", f"{after} (no override)")])
    LogConfig.validated({name: value})
    return Preview([PreviewLine(name, f"{before.text} ({before.source})", f"{value} (DYNAMIC_TOPIC_CONFIG)")])


def alter(asker: Asker, topic: str, name: str, value: str, remove: bool) -> str:
    asker.check_topic(topic, Operation.ALTER_CONFIGS)
    asker.cluster.admin.alter_configs(topic, {name: None if remove else value})
    return f"{topic}: {name} is the cluster's again." if remove else f"{topic}: {name} is {value}."


def preview_grow(asker: Asker, topic: str, partitions: int) -> Preview:
    asker.check_topic(topic, Operation.ALTER)
    before = len(_described(asker, topic).partitions)
    if partitions <= before:
        raise InvalidPartitionsError(f"{topic} has {before} partitions already, and partitions are never removed")
    warning = "Keys change their partition: records of one key that come later may be in another one."
    return Preview([PreviewLine("partitions", str(before), str(partitions))], [warning])


def grow(asker: Asker, topic: str, partitions: int) -> str:
    asker.check_topic(topic, Operation.ALTER)
    asker.cluster.admin.create_partitions(topic, partitions)
    return f"{topic} has {partitions} partitions."


def headers_of(text: str) -> list[tuple[str, bytes]]:
    """Headers of a text with one `name: value` a line."""
    found = []
    for line in text.splitlines():
        name, mark, value = line.partition(":")
        if not line.strip():
            continue
        if not mark:
            raise InvalidRequestError(f"{line.strip()!r} is not name: value")
        found.append((name.strip(), value.strip().encode()))
    return found


def preview_produce(
    asker: Asker, topic: str, key: str, value: str, headers: str, partition: int, tombstone: bool
) -> Preview:
    asker.check_topic(topic, Operation.WRITE)
    count = len(_described(asker, topic).partitions)
    if partition >= count:
        raise UnknownTopicOrPartitionError(f"{topic} has partitions 0 to {count - 1}, not {partition}")
    shown_value = "null" if tombstone else f"{len(value.encode())} bytes"
    lines = [
        PreviewLine(f"record of {topic}", "", "partition by its key" if partition < 0 else f"partition {partition}"),
        PreviewLine("key", "", key or "null"),
        PreviewLine("value", "", shown_value),
        *(PreviewLine(f"header {name}", "", text.decode()) for name, text in headers_of(headers)),
    ]
    return Preview(lines, ["A record that was written cannot be recalled."])


def produce(asker: Asker, topic: str, key: str, value: str, headers: str, partition: int, tombstone: bool) -> str:
    asker.check_topic(topic, Operation.WRITE)
    named = headers_of(headers)
    cluster = asker.cluster
    settings = {"delivery.timeout.ms": PRODUCE_S * 1_000, "request.timeout.ms": PRODUCE_S * 500, "linger.ms": 0}

    def send(producer: Producer) -> str:
        sent = producer.send(
            topic,
            key=key.encode() or None,
            value=None if tombstone else value.encode(),
            headers=named,
            partition=None if partition < 0 else partition,
        )
        written = sent.result(PRODUCE_S)
        return f"Written to {TopicPartition(topic, written.partition)} at offset {written.offset}."

    if cluster.root is not None and not cluster.has_login:
        with Producer(cluster.root, settings, view=cluster.view) as producer:
            return send(producer)
    with cluster.running() as running, Producer(running, settings, view=cluster.view) as producer:
        return send(producer)


_TOPIC = Parameter(str, "the topic")
CHANGES = (
    ClusterChange(
        "create_topic",
        "Create a topic",
        "Creates a topic with partitions, replicas and configs.",
        {
            "topic": Parameter(str, "its name: letters, digits, dots, hyphens, underscores"),
            "partitions": Parameter(int, "how many; -1: the cluster's default", DEFAULT),
            "replication_factor": Parameter(int, "replicas of each partition; -1: the cluster's default", DEFAULT),
            "configs": Parameter(str, "one name=value a line, as retention.ms=604800000", ""),
        },
        preview_create,
        create,
        _topic_page,
        long_texts=frozenset({"configs"}),
    ),
    ClusterChange(
        "alter_topic",
        "Alter a config of a topic",
        "Sets a config of one topic, or removes the override so that the cluster's value counts again.",
        {
            "topic": _TOPIC,
            "name": Parameter(str, "the config, as retention.ms"),
            "value": Parameter(str, "the new value", ""),
            "remove": Parameter(bool, "remove the override instead", False),
        },
        preview_alter,
        alter,
        _topic_page,
    ),
    ClusterChange(
        "grow_topic",
        "Add partitions",
        "Adds partitions to a topic.",
        {"topic": _TOPIC, "partitions": Parameter(int, "how many it has afterwards")},
        preview_grow,
        grow,
        _topic_page,
        is_final=True,
    ),
    ClusterChange(
        "delete_topic",
        "Delete a topic",
        "Deletes a topic with all of its records.",
        {"topic": _TOPIC},
        preview_delete,
        delete,
        lambda _: "/topics",
        is_final=True,
    ),
    ClusterChange(
        "produce",
        "Produce a record",
        "Writes one record.",
        {
            "topic": _TOPIC,
            "key": Parameter(str, "UTF-8; empty: null", ""),
            "value": Parameter(str, "UTF-8", ""),
            "headers": Parameter(str, "one name: value a line", ""),
            "partition": Parameter(int, "its number; -1: by the key", -1),
            "tombstone": Parameter(bool, "null instead of a value: a compacted topic forgets the key", False),
        },
        preview_produce,
        produce,
        lambda values: "/records?" + urlencode({"topic": str(values["topic"])}),
        is_final=True,
        long_texts=frozenset({"value", "headers"}),
    ),
)
