"""The cluster as a fold of `__cluster_metadata`: records, and the image they replay into. Pure.

Record names follow Kafka's KRaft metadata records where they have a counterpart. `ClusterImage.replay` is
the only thing that changes an image; decisions read the image and answer with new records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Generic, TypeVar

from stratalog.storage.errors import CorruptMessageError, UnknownTopicOrPartitionError
from stratalog.storage.records import TopicPartition

NO_LEADER = -1
NO_BROKER_EPOCH = -1
PRODUCER_ID_BLOCK = 1000
CLUSTER_WIDE = ""
DYNAMIC_DEFAULT = "<default>"
"""Kafka's name of the entity that stands for all brokers: what was altered while the cluster runs."""


@dataclass(frozen=True, slots=True)
class ControllerRecord:
    """The elected controller (DESIGN §5, ControllerElected)."""

    type: ClassVar[str] = "Controller"
    controller_id: int
    controller_epoch: int

    @property
    def key(self) -> str:
        return "controller"


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """The identity of the cluster, written once."""

    type: ClassVar[str] = "Cluster"
    cluster_id: str
    format_version: int

    @property
    def key(self) -> str:
        return "cluster"


@dataclass(frozen=True, slots=True)
class RegisterBrokerRecord:
    """A broker process came up under a new broker epoch (KIP-380, KIP-631). `root` is its storage domain's URL."""

    type: ClassVar[str] = "RegisterBroker"
    broker_id: int
    broker_epoch: int
    incarnation_id: str
    root: str
    rack: str | None = None
    endpoint: str | None = None

    @property
    def key(self) -> str:
        return f"broker/{self.broker_id}"


@dataclass(frozen=True, slots=True)
class FenceBrokerRecord:
    """A broker's session expired or it shut down. `clean` means it left after handing everything over."""

    type: ClassVar[str] = "FenceBroker"
    broker_id: int
    broker_epoch: int
    clean: bool = False

    @property
    def key(self) -> str:
        return f"broker/{self.broker_id}/fenced"


@dataclass(frozen=True, slots=True)
class TopicRecord:
    type: ClassVar[str] = "Topic"
    name: str
    topic_id: str

    @property
    def key(self) -> str:
        return f"topic/{self.name}"


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord:
    type: ClassVar[str] = "RemoveTopic"
    name: str
    topic_id: str

    @property
    def key(self) -> str:
        return f"topic/{self.name}"


@dataclass(frozen=True, slots=True)
class TopicDeletionRecord:
    """A removed topic whose replicas `brokers` have yet to delete; none left: the deletion is over.

    Stated with the topic's removal and again by each broker that is done, so that a deletion outlives a broker that
    is down meanwhile. `partitions`: how many the topic had.
    """

    type: ClassVar[str] = "TopicDeletion"
    topic: str
    topic_id: str
    partitions: int
    brokers: tuple[int, ...]

    @property
    def key(self) -> str:
        return f"deletion/{self.topic_id}"


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """A topic's dynamic config, or with `topic` CLUSTER_WIDE or DYNAMIC_DEFAULT a setting that all brokers share.

    `value` None removes it.
    """

    type: ClassVar[str] = "Config"
    topic: str
    name: str
    value: str | None

    @property
    def key(self) -> str:
        return f"config/{self.topic}/{self.name}"


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """Producer ids below `next_producer_id` are given out, in blocks (KIP-730)."""

    type: ClassVar[str] = "ProducerIds"
    broker_id: int
    next_producer_id: int

    @property
    def key(self) -> str:
        return "producer-ids"


@dataclass(frozen=True, slots=True)
class AccessControlEntryRecord:
    """An ACL binding under an id of its own; what the words mean is in `replication.metadata.acls`."""

    type: ClassVar[str] = "AccessControlEntry"
    id: str
    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission_type: str

    @property
    def key(self) -> str:
        return f"acl/{self.id}"


@dataclass(frozen=True, slots=True)
class RemoveAccessControlEntryRecord:
    type: ClassVar[str] = "RemoveAccessControlEntry"
    id: str

    @property
    def key(self) -> str:
        return f"acl/{self.id}"


@dataclass(frozen=True, slots=True)
class EraseRecord:
    """Records of a topic that match are to be erased on every replica: below `end_offsets[partition]`.

    Ids of a topic count up from 1. `predicate` is JSON (`storage.upkeep.erase_predicate`), `request_id` the asker's own
    mark.
    """

    type: ClassVar[str] = "Erase"
    topic: str
    erase_id: int
    predicate: str
    end_offsets: tuple[int, ...]
    request_id: str

    @property
    def key(self) -> str:
        return f"erase/{self.topic}/{self.erase_id}"


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """The whole state of one partition after a change. `partition_epoch` counts every change.

    `elr`, eligible leader replicas (KIP-966): outside the ISR, but with every committed record, since the high
    watermark has stood still from before they left. `last_known_elr`: those of them that lost this by an unclean
    restart. Who is in the ISR, or not assigned any more, is in neither: see `eligible_leaders`.
    """

    type: ClassVar[str] = "Partition"
    topic: str
    partition: int
    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    controller_epoch: int
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    unclean: int = 0
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.elr or self.last_known_elr:
            outside = [r for r in self.replicas if r not in self.isr]
            object.__setattr__(self, "elr", tuple(r for r in self.elr if r in outside))
            known = tuple(r for r in self.last_known_elr if r in outside and r not in self.elr)
            object.__setattr__(self, "last_known_elr", known)

    @property
    def key(self) -> str:
        return f"partition/{self.topic}/{self.partition}"

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def state_json(self) -> str:
        """The state as Kafka wrote it in ZooKeeper (seed 000), one line."""
        state = {
            "controller_epoch": self.controller_epoch,
            "leader": self.leader,
            "version": 1,
            "leader_epoch": self.leader_epoch,
            "isr": list(self.isr),
        }
        return json.dumps(state, separators=(",", ":"))

    def changed(
        self,
        *,
        controller_epoch: int | None = None,
        leader: int | None = None,
        isr: Iterable[int] | None = None,
        bump_leader_epoch: bool,
        unclean: bool = False,
    ) -> PartitionRecord:
        """The next state: `partition_epoch` + 1, and the leader epoch + 1 if asked.

        With another ISR nobody is eligible beside it any more, which is always safe; `eligible_leaders` says who is.
        """
        keeps_isr = isr is None or (isr := tuple(isr)) == self.isr
        return replace(
            self,
            elr=self.elr if keeps_isr and not unclean else (),
            last_known_elr=self.last_known_elr if keeps_isr and not unclean else (),
            controller_epoch=self.controller_epoch if controller_epoch is None else controller_epoch,
            leader=self.leader if leader is None else leader,
            isr=self.isr if isr is None else tuple(isr),
            leader_epoch=self.leader_epoch + bump_leader_epoch,
            partition_epoch=self.partition_epoch + 1,
            unclean=self.unclean + unclean,
        )


MetadataRecord = (
    ControllerRecord
    | ClusterRecord
    | RegisterBrokerRecord
    | FenceBrokerRecord
    | TopicRecord
    | RemoveTopicRecord
    | TopicDeletionRecord
    | ConfigRecord
    | ProducerIdsRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | EraseRecord
    | PartitionRecord
)

_RECORD_TYPES: dict[str, type[Any]] = {
    t.type: t
    for t in (
        ControllerRecord,
        ClusterRecord,
        RegisterBrokerRecord,
        FenceBrokerRecord,
        TopicRecord,
        RemoveTopicRecord,
        TopicDeletionRecord,
        ConfigRecord,
        ProducerIdsRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        EraseRecord,
        PartitionRecord,
    )
}
_FIELD_NAMES = {name: tuple(f.name for f in fields(t)) for name, t in _RECORD_TYPES.items()}
_TUPLE_FIELDS = ("replicas", "isr", "adding", "removing", "end_offsets", "elr", "last_known_elr", "brokers")
_LEFT_OUT_WHEN_EMPTY = ("elr", "last_known_elr")
"""Fields that are rarely anything, and that records of earlier versions lack."""


def record_to_json(record: MetadataRecord) -> tuple[bytes, bytes]:
    """`(key, value)` of a metadata record; the key lets compaction keep the newest state of each thing."""
    body: dict[str, Any] = {"type": record.type}
    for name in _FIELD_NAMES[record.type]:  # `dataclasses.asdict` takes six times as long
        value = getattr(record, name)
        if value or name not in _LEFT_OUT_WHEN_EMPTY:
            body[name] = value
    return record.key.encode(), json.dumps(body, separators=(",", ":")).encode()


def record_from_json(value: bytes) -> MetadataRecord:
    """The record of a value. CorruptMessageError when its type or a field is unknown."""
    try:
        body = json.loads(value.decode())
        record_type = _RECORD_TYPES[body.pop("type")]
        for name in _TUPLE_FIELDS:
            if name in body:
                body[name] = tuple(body[name])
        record: MetadataRecord = record_type(**body)
    except (ValueError, KeyError, TypeError) as reason:
        raise CorruptMessageError(f"not a metadata record: {value[:200]!r} ({reason})") from reason
    return record


@dataclass(frozen=True, slots=True)
class BrokerState:
    """What the cluster knows of one broker. A fenced broker leads nothing."""

    registration: RegisterBrokerRecord
    fenced: bool = False
    clean_shutdown: bool = False

    @property
    def broker_epoch(self) -> int:
        return self.registration.broker_epoch


Response_co = TypeVar("Response_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Result(Generic[Response_co]):
    """A decision: the records to commit in one piece (none = nothing to do) and the answer for the caller."""

    records: tuple[MetadataRecord, ...]
    response: Response_co


@dataclass(slots=True)
class ClusterImage:
    """The fold. `replay` is its only mutator; one running part owns one image."""

    cluster_id: str = ""
    controller_id: int = NO_LEADER
    controller_epoch: int = 0
    brokers: dict[int, BrokerState] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    partitions: dict[TopicPartition, PartitionRecord] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    erases: dict[str, dict[int, EraseRecord]] = field(default_factory=dict)
    deletions: dict[str, TopicDeletionRecord] = field(default_factory=dict)
    partitions_by_topic: dict[str, set[TopicPartition]] = field(default_factory=dict)
    acls: dict[str, AccessControlEntryRecord] = field(default_factory=dict)
    next_producer_id: int = 0
    last_broker_epoch: int = 0

    def replay(self, record: MetadataRecord) -> None:
        """Fold one record in."""
        match record:
            case PartitionRecord():
                self.partitions[record.topic_partition] = record
                self.partitions_by_topic.setdefault(record.topic, set()).add(record.topic_partition)
            case RegisterBrokerRecord():
                self.brokers[record.broker_id] = BrokerState(record)
                self.last_broker_epoch = max(self.last_broker_epoch, record.broker_epoch)
            case FenceBrokerRecord():
                self._fence(record)
            case ControllerRecord():
                self.controller_id = record.controller_id
                self.controller_epoch = record.controller_epoch
            case TopicRecord() | RemoveTopicRecord() | TopicDeletionRecord():
                self._come_or_go(record)
            case ConfigRecord() | EraseRecord():
                self._ask_of_topic(record)
            case ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id
            case ClusterRecord():
                self.cluster_id = record.cluster_id
            case AccessControlEntryRecord() | RemoveAccessControlEntryRecord():
                self._allow_or_deny(record)

    def _fence(self, record: FenceBrokerRecord) -> None:
        known = self.brokers.get(record.broker_id)
        if known and known.broker_epoch == record.broker_epoch:
            self.brokers[record.broker_id] = replace(known, fenced=True, clean_shutdown=record.clean)

    def _come_or_go(self, record: TopicRecord | RemoveTopicRecord | TopicDeletionRecord) -> None:
        if isinstance(record, TopicDeletionRecord):
            self.deletions.pop(record.topic_id, None)
            if record.brokers:
                self.deletions[record.topic_id] = record
            return
        self._remove_topic(record.name)  # before a new topic, too: compaction may have left parts of an older one
        if isinstance(record, TopicRecord):
            self.topic_ids[record.name] = record.topic_id

    def _remove_topic(self, name: str) -> None:
        self.topic_ids.pop(name, None)
        self.configs.pop(name, None)
        self.erases.pop(name, None)
        for topic_partition in self.partitions_by_topic.pop(name, ()):
            del self.partitions[topic_partition]

    def _ask_of_topic(self, record: ConfigRecord | EraseRecord) -> None:
        if isinstance(record, EraseRecord):
            self.erases.setdefault(record.topic, {})[record.erase_id] = record
            return
        overrides = self.configs.setdefault(record.topic, {})
        if record.value is None:
            overrides.pop(record.name, None)
        else:
            overrides[record.name] = record.value

    def _allow_or_deny(self, record: AccessControlEntryRecord | RemoveAccessControlEntryRecord) -> None:
        if isinstance(record, AccessControlEntryRecord):
            self.acls[record.id] = record
        else:
            self.acls.pop(record.id, None)

    def live_brokers(self) -> dict[int, BrokerState]:
        """Brokers that are registered and not fenced."""
        return {i: b for i, b in self.brokers.items() if not b.fenced}

    def is_current(self, broker_id: int, broker_epoch: int) -> bool:
        """True while `broker_epoch` is the live registration of the broker."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced and broker.broker_epoch == broker_epoch

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """The topic's partitions in order; an empty list for an unknown topic."""
        return sorted(self.partitions_by_topic.get(topic, ()))

    def partition(self, topic_partition: TopicPartition) -> PartitionRecord:
        """The partition's state. UnknownTopicOrPartitionError naming what exists."""
        state = self.partitions.get(topic_partition)
        if state is None:
            known = len(self.partitions_of(topic_partition.topic))
            what = f"topic '{topic_partition.topic}' has {known} partitions" if known else "no such topic"
            raise UnknownTopicOrPartitionError(f"{topic_partition}: {what}")
        return state

    def cluster_config(self, name: str, default: str) -> str:
        """A setting that all brokers share: as it was altered, else as the cluster was last started with."""
        started_with = self.configs.get(CLUSTER_WIDE, {}).get(name, default)
        return self.configs.get(DYNAMIC_DEFAULT, {}).get(name, started_with)

    def topic_config(self, topic: str) -> Mapping[str, str]:
        """The topic's overrides by Kafka name."""
        return self.configs.get(topic, {})
