"""The records of the metadata log and their JSON. Pure.

A record is a value of one of the classes of `MetadataRecord`. Compaction keeps the last record of each key. Names are
those of Kafka's metadata records (KRaft) where there is a counterpart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, get_args

from stratalog.replication.log_configs import TOPIC_CONFIG_OF
from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.records import TopicPartition

NO_LEADER = -1
NO_BROKER_EPOCH = -1
CLUSTER_WIDE = ""
"""The `ConfigRecord.topic` of the configs that the cluster was started with."""
DYNAMIC_DEFAULT = "<default>"
"""The `ConfigRecord.topic` of cluster-wide configs that were altered: Kafka's name of the entity for all brokers."""
_BROKER, _GROUP = "<broker>", "<group>"


def of_broker(broker_id: int) -> str:
    """The `ConfigRecord.topic` of the configs of one broker; no topic has such a name."""
    return f"{_BROKER}{broker_id}"


def of_group(group_id: str) -> str:
    """The `ConfigRecord.topic` of the configs of one group."""
    return f"{_GROUP}{group_id}"


def group_of(topic: str) -> str | None:
    """The group whose configs these are; None for anything else.

    >>> group_of(of_group("g")), group_of("g")
    ('g', None)
    """
    return topic.removeprefix(_GROUP) if topic.startswith(_GROUP) else None


class _KeyedRecord:
    """A record whose type is the name of its class, and whose key is made of its fields."""

    __slots__ = ()
    type: ClassVar[str]
    _key: ClassVar[str]

    def __init_subclass__(cls, *, key: str | None = None) -> None:
        if key is not None:  # a class with slots is made twice, the second time without arguments
            cls.type, cls._key = cls.__name__.removesuffix("Record"), key

    @property
    def key(self) -> str:
        """Compaction keeps the last record of each."""
        return self._key.format(self)


@dataclass(frozen=True, slots=True)
class ControllerRecord(_KeyedRecord, key="controller"):
    """The elected controller of a controller epoch."""

    controller_id: int
    controller_epoch: int


@dataclass(frozen=True, slots=True)
class ClusterRecord(_KeyedRecord, key="cluster"):
    """The identity of the cluster, written once."""

    cluster_id: str
    format_version: int


@dataclass(frozen=True, slots=True)
class RegisterBrokerRecord(_KeyedRecord, key="broker/{0.broker_id}"):
    """A broker process starts under a new broker epoch (KIP-380, KIP-631). `root`: the URL of its replicas' place.

    directory_id  of the directory there (KIP-858): a replaced or emptied disk has another one. None: not recorded yet
    """

    broker_id: int
    broker_epoch: int
    incarnation_id: str
    root: str
    rack: str | None = None
    endpoint: str | None = None
    directory_id: str | None = None


@dataclass(frozen=True, slots=True)
class FenceBrokerRecord(_KeyedRecord, key="broker/{0.broker_id}/fenced"):
    """A broker's session expired, or it shut down; `clean`: a controlled shutdown, which moved its leaderships."""

    broker_id: int
    broker_epoch: int
    clean: bool = False


@dataclass(frozen=True, slots=True)
class UnregisterBrokerRecord(_KeyedRecord, key="broker/{0.broker_id}"):
    """The broker was stopped for good. In the place of its registration, and kept: `broker_epoch` is not used again."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class StorageDomainRecord(_KeyedRecord, key="domain/{0.name}"):
    """A place whose durability is somebody else's business, in which partitions have one table for all their brokers.

    url      of the place, without a slash at its end: a bucket's prefix, or a directory that all brokers see
    durable  whether what is stored there survives the loss of any machine: topics are placed in no other
    racks    the `broker.rack` of those that use it, as the zones of its region; empty: any broker
    """

    name: str
    url: str
    durable: bool
    racks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoveStorageDomainRecord(_KeyedRecord, key="domain/{0.name}"):
    name: str


@dataclass(frozen=True, slots=True)
class TopicRecord(_KeyedRecord, key="topic/{0.name}"):
    name: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord(_KeyedRecord, key="topic/{0.name}"):
    name: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class TopicDeletionRecord(_KeyedRecord, key="deletion/{0.topic_id}"):
    """A removed topic whose replicas `brokers` have yet to delete; none left: the deletion is over.

    Written with the topic's removal and again for each broker that is done, so that a deletion outlives a broker that
    is down meanwhile. `partitions`: the topic's number of partitions. `domains`: the storage domains with its tables.
    """

    topic: str
    topic_id: str
    partitions: int
    brokers: tuple[int, ...]
    domains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigRecord(_KeyedRecord, key="config/{0.topic}/{0.name}"):
    """A topic's config, or with `topic` CLUSTER_WIDE or DYNAMIC_DEFAULT a cluster-wide one, with `of_broker` or
    `of_group` one of a broker or group. `value` None removes it."""

    topic: str
    name: str
    value: str | None

    @property
    def is_of_all_topics(self) -> bool:
        """Whether it is a default of topics' configs, of all brokers or of one."""
        is_of_brokers = self.topic in (CLUSTER_WIDE, DYNAMIC_DEFAULT) or self.topic.startswith(_BROKER)
        return is_of_brokers and self.name in TOPIC_CONFIG_OF


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord(_KeyedRecord, key="producer-ids"):
    """Producer ids below `next_producer_id` are allocated, in blocks (KIP-730)."""

    broker_id: int
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class AccessControlEntryRecord(_KeyedRecord, key="acl/{0.id}"):
    """An ACL binding under an id of its own; its words are those of `acls`."""

    id: str
    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission_type: str


@dataclass(frozen=True, slots=True)
class RemoveAccessControlEntryRecord(_KeyedRecord, key="acl/{0.id}"):
    id: str


@dataclass(frozen=True, slots=True)
class UserScramCredentialRecord(_KeyedRecord, key="scram/{0.mechanism}/{0.name}"):
    """What a user's password is checked against under a SCRAM mechanism (KIP-554); neither it nor a key to log in with.

    mechanism                       "SCRAM-SHA-256" or "SCRAM-SHA-512"
    salt, stored_key, server_key    base64
    """

    name: str
    mechanism: str
    salt: str
    stored_key: str
    server_key: str
    iterations: int


@dataclass(frozen=True, slots=True)
class RemoveUserScramCredentialRecord(_KeyedRecord, key="scram/{0.mechanism}/{0.name}"):
    name: str
    mechanism: str


@dataclass(frozen=True, slots=True)
class EraseRecord(_KeyedRecord, key="erase/{0.topic}/{0.erase_id}"):
    """Matching records of a topic below `end_offsets[partition]` are to be erased on every replica.

    Ids of a topic count up from 1. `predicate` is JSON (`storage.upkeep.erase_predicate`), `request_id` the client's
    id. `leader_epochs`: under which the end offsets were high watermarks; empty in records of earlier versions.
    """

    topic: str
    erase_id: int
    predicate: str
    end_offsets: tuple[int, ...]
    request_id: str
    leader_epochs: tuple[int, ...] = ()


Placed = tuple[int, str]
"""A replica, and the storage domain with its table; "" for its broker's root."""


@dataclass(frozen=True, slots=True)
class PartitionRecord(_KeyedRecord, key="partition/{0.topic}/{0.partition}"):
    """The whole state of one partition after a change. `partition_epoch` counts every change.

    `elr`, eligible leader replicas (KIP-966): outside the ISR, but with every committed record, since the high
    watermark has stood still since they left. `last_known_elr`: those of them that lost this by an unclean restart.
    Members of the ISR and replicas that are no longer assigned are in neither: see `eligible_leaders`.
    `lost`: members of the ISR whose table is gone. They lead only by an unclean election; while nobody else may lead,
    the partition is offline.
    `domain`: the storage domain with the table of the replicas; empty: each replica has one in its broker's root.
    `elsewhere`: the replicas of which `domain` does not hold, each with its own domain, or "" for its broker's root.
    `target`: where a move under way is to end, all replicas with their domains, as in `elsewhere`; empty: none is.
    `left`: the domains whose table of the partition is to be deleted, since no replica has it any more.
    `offline`: replicas whose brokers reported that they cannot serve the domain's table. They are not in sync, and lead
    nothing, until they report that they can; but one that nobody can replace stays the leader.
    """

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
    lost: tuple[int, ...] = ()
    domain: str = ""
    elsewhere: tuple[Placed, ...] = ()
    target: tuple[Placed, ...] = ()
    left: tuple[str, ...] = ()
    offline: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.elsewhere:
            kept = tuple(sorted((r, d) for r, d in self.elsewhere if r in self.replicas and d != self.domain))
            object.__setattr__(self, "elsewhere", kept)
        if self.offline:
            in_domains = (r for r in self.replicas if self.domain_of(r))
            object.__setattr__(self, "offline", tuple(r for r in in_domains if r in self.offline))
        if self.lost:
            object.__setattr__(self, "lost", tuple(r for r in self.isr if r in self.lost))
        if self.elr or self.last_known_elr:
            outside = [r for r in self.replicas if r not in self.isr]
            object.__setattr__(self, "elr", tuple(r for r in self.elr if r in outside))
            known = tuple(r for r in self.last_known_elr if r in outside and r not in self.elr)
            object.__setattr__(self, "last_known_elr", known)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def domain_of(self, broker_id: int) -> str:
        """The storage domain with the table of this replica; empty: it is in the broker's root."""
        return next((domain for replica, domain in self.elsewhere if replica == broker_id), self.domain)

    @property
    def has_one_table(self) -> bool:
        """Whether all replicas have the same table, in a storage domain: what it holds is committed."""
        if not self.elsewhere:
            return bool(self.domain)
        return len(names := {self.domain_of(replica) for replica in self.replicas}) == 1 and "" not in names

    @property
    def domains(self) -> set[str]:
        """The storage domains with a table of the partition, or with one that is to be."""
        every = (self.domain_of(replica) for replica in self.replicas)
        return {*every, *(domain for _, domain in self.target), *self.left} - {""}

    def sharing(self, broker_id: int) -> tuple[int, ...]:
        """The replicas with the same table as this one, itself among them, in the order of the assignment."""
        domain = self.domain_of(broker_id)
        return tuple(r for r in self.replicas if r == broker_id or (domain and self.domain_of(r) == domain))

    def is_held_in_sync(self, broker_id: int) -> bool:
        """Whether this replica's table is that of a member of the ISR: it has all that is committed."""
        return broker_id in self.isr or any(r in self.isr for r in self.sharing(broker_id))

    def state_json(self) -> str:
        """The state as Kafka wrote it in ZooKeeper (`/brokers/topics/<topic>/partitions/<n>/state`), one line."""
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

        With another ISR there are no eligible leaders, which is always safe; `eligible_leaders` adds them.
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
            lost=() if unclean else self.lost,
        )


@dataclass(frozen=True, slots=True)
class TombstoneRecord:
    """The record of `key` is over. On storage a null value: compaction removes both `delete.retention.ms` later."""

    type: ClassVar[str] = "Tombstone"
    key: str


MetadataRecord = (
    ControllerRecord
    | ClusterRecord
    | RegisterBrokerRecord
    | FenceBrokerRecord
    | UnregisterBrokerRecord
    | StorageDomainRecord
    | RemoveStorageDomainRecord
    | TopicRecord
    | RemoveTopicRecord
    | TopicDeletionRecord
    | ConfigRecord
    | ProducerIdsRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | EraseRecord
    | PartitionRecord
    | TombstoneRecord
)

_RECORD_TYPES: dict[str, type[Any]] = {each.type: each for each in get_args(MetadataRecord)}
_FIELD_NAMES = {name: tuple(f.name for f in fields(t)) for name, t in _RECORD_TYPES.items()}
_TUPLE_FIELDS = (
    *("replicas", "isr", "adding", "removing", "elr", "last_known_elr", "lost", "brokers"),
    *("end_offsets", "leader_epochs", "domains", "left", "racks", "offline"),
)
_PLACED_FIELDS = ("elsewhere", "target")
_LEFT_OUT_WHEN_EMPTY = (
    *("directory_id", "elr", "last_known_elr", "lost", "leader_epochs", "domain", "domains"),
    *("elsewhere", "target", "left", "racks", "offline"),
)
"""Fields that are mostly empty, and that records of earlier versions lack."""


def record_to_json(record: MetadataRecord) -> tuple[bytes, bytes]:
    """`(key, value)` of a metadata record."""
    body: dict[str, Any] = {"type": record.type}
    for name in _FIELD_NAMES[record.type]:  # faster than `dataclasses.asdict`
        value = getattr(record, name)
        if value or name not in _LEFT_OUT_WHEN_EMPTY:
            body[name] = value
    return record.key.encode(), json.dumps(body, separators=(",", ":")).encode()


def record_to_row(record: MetadataRecord) -> tuple[bytes, bytes | None]:
    """`(key, value)` of a row of the log, where a tombstone is a null value."""
    key, value = record_to_json(record)
    return key, None if isinstance(record, TombstoneRecord) else value


def value_of_row(key: bytes, value: bytes | None) -> bytes:
    """The JSON of a row of the log, for `record_from_json`."""
    return record_to_json(TombstoneRecord(key.decode()))[1] if value is None else value


def record_from_json(value: bytes) -> MetadataRecord:
    """The record of a value. CorruptMessageError when its type or a field is unknown."""
    try:
        body = json.loads(value.decode())
        record_type = _RECORD_TYPES[body.pop("type")]
        for name in _TUPLE_FIELDS:
            if name in body:
                body[name] = tuple(body[name])
        for name in _PLACED_FIELDS:
            if name in body:
                body[name] = tuple((replica, domain) for replica, domain in body[name])
        record: MetadataRecord = record_type(**body)
    except (ValueError, KeyError, TypeError) as reason:
        raise CorruptMessageError(f"not a metadata record: {value[:200]!r} ({reason})") from reason
    return record
