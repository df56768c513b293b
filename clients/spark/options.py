"""The options of the Spark source and sink as values, with the Kafka connector's names, defaults and error texts. Pure.

`stratalog.root` replaces the connector's `kafka.bootstrap.servers`; every other name is the connector's, in any case.
A wrong option raises InvalidConfigError with the connector's text. Source: KafkaSourceProvider (spark-sql-kafka-0-10).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from stratalog.storage.config_def import ConfigKey, one_of
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.records import TopicPartition

if TYPE_CHECKING:  # a query without a group, or a sink without transactions, loads none of its own
    from stratalog.clients.spark.group.options import GroupOptions
    from stratalog.clients.spark.transaction.options import TransactionOptions

LATEST = -1
EARLIEST = -2
GROUP = -3
"""The group's committed offset, where a stream starts with `startingOffsets=group`."""
START_SUFFIX = "@start"
"""Suffix of names in the end of a query's first batch, under which the start of that batch is stored.

No topic's name has an `@`.
"""
MEMBER = "@member"
"""Name in the end of a batch of a query that shares partitions: the member of the group that planned it."""
ROOT = "stratalog.root"
DEFAULT_MAX_TRIGGER_DELAY = "15m"

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of the named topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of the topics in whose name the regular expression is found."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Assign:
    """Exactly these partitions."""

    partitions: tuple[TopicPartition, ...]


Subscription = Subscribe | SubscribePattern | Assign


@dataclass(frozen=True, slots=True)
class OffsetLimit:
    """Where every partition starts or ends: `LATEST`, `EARLIEST` or, for the start of a stream, `GROUP`."""

    position: int


@dataclass(frozen=True, slots=True)
class SpecificOffsets:
    """An offset per partition; `LATEST` and `EARLIEST` are allowed as offsets."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class SpecificTimestamps:
    """A time in ms per partition: its first record at or after that time."""

    timestamps: Mapping[TopicPartition, int]
    latest_on_no_match: bool = False


@dataclass(frozen=True, slots=True)
class GlobalTimestamp:
    """One time in ms for all partitions."""

    timestamp_ms: int
    latest_on_no_match: bool = False


OffsetRangeLimit = OffsetLimit | SpecificOffsets | SpecificTimestamps | GlobalTimestamp


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of a source. Times in ms, limits in records."""

    root: str
    subscription: Subscription
    starting: OffsetRangeLimit
    ending: OffsetRangeLimit
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    poll_timeout_ms: int = 120_000
    num_retries: int = 3
    retry_interval_ms: int = 1_000
    isolation_level: str = "read_uncommitted"
    group: GroupOptions | None = None


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options of a sink. `topic` overrides the column; `acks` is -1 or 1; times in ms.

    `compression_type` applies where the topic's is `producer`. Kafka's default is none; here it is zstd, since every
    replica keeps a file as it was written.

    Ours, not Kafka's: `timestamp_column` gives the records' CreateTime; `txn_app_id` with `txn_version`, as
    Delta has them, make a batch write idempotent (in foreachBatch: the query's name and the batch id).
    """

    root: str
    topic: str | None = None
    acks: int = -1
    delivery_timeout_ms: int = 120_000
    max_block_ms: int = 60_000
    batch_size: int = 16_384
    buffer_memory: int = 33_554_432
    compression_type: str = "zstd"
    timestamp_column: str | None = None
    txn_app_id: str | None = None
    txn_version: int | None = None
    transaction: TransactionOptions | None = None


def stream_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of `readStream`."""
    params = _lowered(options)
    for name in ("endingoffsets", "endingoffsetsbytimestamp", "endingtimestamp"):
        if name in params:
            what = "offset" if name == "endingoffsets" else "timestamp"
            raise InvalidConfigError(f"ending {what} not valid in streaming queries")
    _validate(params)
    group = _group(params)
    _warn_of(without_effect(options, OF_SOURCE if group is None else OF_SOURCE | group.names))
    return replace(_source_options(params, OffsetLimit(LATEST)), group=group)


def batch_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of `read`."""
    params = _lowered(options)
    starting = _limit(params, "starting", OffsetLimit(EARLIEST))
    if starting == OffsetLimit(LATEST):
        raise InvalidConfigError("starting offset can't be latest for batch queries on Kafka")
    for partition in _partitions_at(starting, LATEST):
        raise InvalidConfigError(f"startingOffsets for {partition} can't be latest for batch queries on Kafka")
    if starting == OffsetLimit(GROUP):
        raise InvalidConfigError("startingOffsets=group is for streaming queries: a batch query commits no offsets")
    ending = _limit(params, "ending", OffsetLimit(LATEST))
    if ending == OffsetLimit(EARLIEST):
        raise InvalidConfigError("ending offset can't be earliest for batch queries on Kafka")
    for partition in _partitions_at(ending, EARLIEST):
        raise InvalidConfigError(f"ending offset for {partition} can't be earliest for batch queries on Kafka")
    _validate(params)
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        if name.lower() in params:
            _log.warning("%s option ignored in batch queries", name)
    _warn_of(without_effect(options, OF_SOURCE))
    return _source_options(params, OffsetLimit(EARLIEST))


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The options of `write` and `writeStream`."""
    params = _lowered(options)
    for name, what in (("key.serializer", "keys"), ("value.serializer", "value")):
        if f"kafka.{name}" in params:
            raise InvalidConfigError(
                f"Kafka option '{name}' is not supported as {what} are serialized with ByteArraySerializer."
            )
    if ROOT not in params:
        raise InvalidConfigError(f"Option '{ROOT}' must be specified for configuring Kafka producer")
    if ("txnappid" in params) != ("txnversion" in params):
        raise InvalidConfigError("txnAppId and txnVersion must be given together")
    transaction = _transaction(params)
    _warn_of(without_effect(options, OF_SINK if transaction is None else OF_SINK | transaction.names))
    topic = params.get("topic")
    return SinkOptions(
        root=params[ROOT],
        topic=topic.strip() if topic is not None else None,
        acks=_option(params, "kafka.acks"),
        delivery_timeout_ms=_option(params, "kafka.delivery.timeout.ms"),
        max_block_ms=_option(params, "kafka.max.block.ms"),
        batch_size=_option(params, "kafka.batch.size"),
        buffer_memory=_option(params, "kafka.buffer.memory"),
        compression_type=_option(params, "kafka.compression.type"),
        timestamp_column=params.get("stratalog.timestamp.column"),
        txn_app_id=params.get("txnappid"),
        txn_version=_option(params, "txnversion"),
        transaction=transaction,
    )


def _transaction(params: Mapping[str, str]) -> TransactionOptions | None:
    if not any("transactional" in name for name in params):
        return None
    from stratalog.clients.spark.transaction.options import transaction_options

    return transaction_options(params)


def without_effect(options: Mapping[str, str], with_effect: frozenset[str]) -> dict[str, str]:
    """Why options do nothing, by name in order; a reason is empty for a name that nobody knows.

    >>> without_effect({"kafka.linger.ms": "5", "topic": "t"}, frozenset({"topic"}))
    {'kafka.linger.ms': ''}
    """
    lowered = _lowered(options).keys() - with_effect
    return {name: _WITHOUT_EFFECT.get(name, "") for name in sorted(lowered)}


def _warn_of(ignored: Mapping[str, str]) -> None:
    for name, why in ignored.items():
        warn_once(f"option {_SPELLED.get(name, name)} has no effect{why and ': '}{why}")


@lru_cache(maxsize=1_000)
def warn_once(text: str) -> None:
    """Once in a process: the sink's options are parsed twice for each micro-batch."""
    _log.warning("%s", text)


def parse_partitions(text: str) -> tuple[TopicPartition, ...]:
    """`{"topicA":[0,1]}`."""
    return _from_json(
        text,
        '{"topicA":[0,1],"topicB":[0,1]}',
        lambda topics: tuple(TopicPartition(topic, _whole(p)) for topic, ps in topics.items() for p in ps),
    )


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """`{"topicA":{"0":23,"1":-1}}`, or offsets of a stream's progress; the start in its first end is skipped."""
    return _from_json(
        text,
        '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}',
        lambda topics: _per_partition({topic: offsets for topic, offsets in topics.items() if "@" not in topic}),
    )


def parse_timestamps(text: str) -> dict[TopicPartition, int]:
    """`{"topicA":{"0":123456789}}`, ms."""
    times = '{"0": 123456789, "1": 123456789}'
    return _from_json(text, f'{{"topicA": {times},\n"topicB": {times}}}', _per_partition)


def _from_json(text: str, example: str, read: Callable[[Any], T]) -> T:
    try:
        return read(json.loads(text))
    except (ValueError, AttributeError, TypeError) as reason:
        raise InvalidConfigError(f"Expected e.g. {example}, got {text}") from reason


_DURATION = re.compile(r"(-?\d+)([a-z]+)?")
_UNIT_MS: Mapping[str, float] = {
    "us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip


def parse_duration_ms(text: str) -> int:
    """A Spark time string as ms: `250us`, `100ms`, `50s`, `15m`; a bare number is ms."""
    match = _DURATION.fullmatch(text.strip().lower())
    unit = (match[2] or "ms") if match else ""
    if match is None or unit not in _UNIT_MS:
        raise InvalidConfigError(
            "Time must be specified as seconds (s), milliseconds (ms), microseconds (us), minutes (m or min), "
            f"hour (h), or day (d). E.g. 50s, 100ms, or 250us.\nFailed to parse time string: {text}"
        )
    return int(int(match[1]) * _UNIT_MS[unit])


def _lowered(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _per_partition(topics: Mapping[str, Mapping[str, object]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): _whole(number)
        for topic, numbers in topics.items()
        for partition, number in numbers.items()
    }


def _partitions_at(limit: OffsetRangeLimit, position: int) -> list[TopicPartition]:
    if not isinstance(limit, SpecificOffsets):
        return []
    return [tp for tp, offset in limit.offsets.items() if offset == position]


def _limit(params: Mapping[str, str], side: str, default: OffsetLimit) -> OffsetRangeLimit:
    """Kafka's order of preference: one time for all, a time per partition, offsets."""
    latest_on_no_match = _no_match_strategy(params)
    if f"{side}timestamp" in params:
        text = params[f"{side}timestamp"].strip()
        try:
            return GlobalTimestamp(int(text), latest_on_no_match)
        except ValueError as reason:
            raise InvalidConfigError(f"Expected a single long value, got {text}") from reason
    if f"{side}offsetsbytimestamp" in params:
        return SpecificTimestamps(parse_timestamps(params[f"{side}offsetsbytimestamp"].strip()), latest_on_no_match)
    text = params.get(f"{side}offsets", "").strip()
    if not text and f"{side}offsets" not in params:
        return default
    positions = {"latest": LATEST, "earliest": EARLIEST} | ({"group": GROUP} if side == "starting" else {})
    named = OffsetLimit(positions[text.lower()]) if text.lower() in positions else None
    return named or SpecificOffsets(parse_offsets(text))


def _no_match_strategy(params: Mapping[str, str]) -> bool:
    text = params.get("startingoffsetsbytimestampstrategy", "error")
    if text.upper() not in ("ERROR", "LATEST"):
        raise InvalidConfigError(f"No value found for '{text.upper()}'")
    return text.upper() == "LATEST"


_STRATEGIES = ("subscribe", "subscribepattern", "assign")
_AUTO_OFFSET_RESET = """
Kafka option 'auto.offset.reset' is not supported.
Instead set the source option 'startingoffsets' to 'earliest' or 'latest'
to specify where to start. Structured Streaming manages which offsets are consumed
internally, rather than relying on the kafkaConsumer to do it. This will ensure that no
data is missed when new topics/partitions are dynamically subscribed. Note that
'startingoffsets' only applies when a new Streaming query is started, and
that resuming will always pick up from where the query left off. See the docs for more
details.
"""
_REFUSED = {
    "auto.offset.reset": _AUTO_OFFSET_RESET,
    "key.deserializer": "Kafka option 'key.deserializer' is not supported as keys are deserialized as byte arrays with "
    "ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize the keys.",
    "value.deserializer": "Kafka option 'value.deserializer' is not supported as values are deserialized as byte "
    "arrays with ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize the values.",
    "enable.auto.commit": "Kafka option 'enable.auto.commit' is not supported",
    "interceptor.classes": "Kafka option 'interceptor.classes' is not supported",
}


def _validate(params: Mapping[str, str]) -> None:
    _subscription(params)
    for name in ("minPartitions", "maxRecordsPerPartition"):
        number = _option(params, name.lower())
        if number is not None and number <= 0:
            # the connector prints the second name as its own lower-case key
            shown = name if name == "minPartitions" else name.lower()
            raise InvalidConfigError(f"{shown} must be positive")
    for name, text in _REFUSED.items():
        if f"kafka.{name}" in params:
            raise InvalidConfigError(text)
    if ROOT not in params:
        raise InvalidConfigError(f"Option '{ROOT}' must be specified for configuring Kafka consumer")
    least = _option(params, "minoffsetspertrigger")
    most = _option(params, "maxoffsetspertrigger")
    if least is not None and most is not None and least > most:
        raise InvalidConfigError(
            f"The value of minOffsetPerTrigger({least}) is higher than the maxOffsetsPerTrigger({most})."
        )


def _subscription(params: Mapping[str, str]) -> Subscription:
    given = [name for name in _STRATEGIES if name in params]
    if len(given) != 1:
        how_many = "One of the following options must be" if not given else "Only one of the following options can be"
        raise InvalidConfigError(
            f"{how_many} specified for Kafka source: {', '.join(_STRATEGIES)}. See the docs for more details."
        )
    value = params[given[0]]
    if given[0] == "assign":
        if not value.strip().startswith("{"):
            raise InvalidConfigError(
                f"No topicpartitions to assign as specified value for option 'assign' is '{value}'"
            )
        return Assign(parse_partitions(value))
    if given[0] == "subscribe":
        topics = tuple(t.strip() for t in value.split(",") if t.strip())
        if not topics:
            raise InvalidConfigError(
                f"No topics to subscribe to as specified value for option 'subscribe' is '{value}'"
            )
        return Subscribe(topics)
    return SubscribePattern(_pattern(value))


def _pattern(value: str) -> str:
    if not value.strip():
        raise InvalidConfigError(
            f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is '{value}'"
        )
    try:
        re.compile(value.strip())
    except re.error as reason:
        raise InvalidConfigError(f"'subscribePattern' is not a regular expression: '{value}' ({reason})") from reason
    return value.strip()


def _source_options(params: Mapping[str, str], default_start: OffsetLimit) -> SourceOptions:
    # Kafka's consumer config; the shorter name is accepted, too
    level = params.get("kafka.isolation.level", params.get("isolation.level", _ISOLATION_LEVEL.default))
    return SourceOptions(
        root=params[ROOT],
        subscription=_subscription(params),
        starting=_limit(params, "starting", default_start),
        ending=_limit(params, "ending", OffsetLimit(LATEST)),
        fail_on_data_loss=_option(params, "failondataloss"),
        include_headers=_option(params, "includeheaders"),
        min_partitions=_option(params, "minpartitions"),
        max_records_per_partition=_option(params, "maxrecordsperpartition"),
        max_offsets_per_trigger=_option(params, "maxoffsetspertrigger"),
        min_offsets_per_trigger=_option(params, "minoffsetspertrigger"),
        max_trigger_delay_ms=parse_duration_ms(params.get("maxtriggerdelay", DEFAULT_MAX_TRIGGER_DELAY)),
        poll_timeout_ms=_option(params, "kafkaconsumer.polltimeoutms"),
        num_retries=_option(params, "fetchoffset.numretries"),
        retry_interval_ms=_option(params, "fetchoffset.retryintervalms"),
        isolation_level=_ISOLATION_LEVEL.parse(level),
    )


def _group(params: Mapping[str, str]) -> GroupOptions | None:
    starts_at_group = _limit(params, "starting", OffsetLimit(LATEST)) == OffsetLimit(GROUP)
    if not starts_at_group and not any("group" in name or "auto.offset.reset" in name for name in params):
        return None
    from stratalog.clients.spark.group.options import group_options

    return group_options(params, starts_at_group=starts_at_group)


def include_headers(options: Mapping[str, str]) -> bool:
    """Whether the source's schema ends with `headers`; for schema(), before anything else is checked."""
    return bool(_option(_lowered(options), "includeheaders"))


def _option(params: Mapping[str, str], name: str) -> Any:
    key = _OPTIONS[name]
    if name not in params:
        return key.default
    try:
        return key.parse(params[name])
    except InvalidConfigError as reason:
        if key.type == "STRING":
            raise
        # the connector reads these itself, with Scala's parsers
        raise InvalidConfigError(f'option {name}: For input string: "{params[name]}"') from reason


def _acks(text: str) -> int:
    known = {"all": -1, "-1": -1, "1": 1}
    if text.strip().lower() not in known:
        raise ValueError("the sink waits for the leader (1) or all in-sync replicas (all)")
    return known[text.strip().lower()]


_ISOLATION_LEVEL = ConfigKey(
    "isolation.level", "STRING", "read_uncommitted", validator=one_of("read_committed", "read_uncommitted")
)
_NUMBERS = {
    "minpartitions": None,
    "maxrecordsperpartition": None,
    "maxoffsetspertrigger": None,
    "minoffsetspertrigger": None,
    "kafkaconsumer.polltimeoutms": 120_000,
    "fetchoffset.numretries": 3,
    "fetchoffset.retryintervalms": 1_000,
    "txnversion": None,
    "kafka.delivery.timeout.ms": 120_000,
    "kafka.max.block.ms": 60_000,
    "kafka.batch.size": 16_384,
    "kafka.buffer.memory": 33_554_432,
}
_COMPRESSION_TYPES = one_of("none", "gzip", "snappy", "lz4", "zstd")
_OPTIONS = {name: ConfigKey(name, "INT", default) for name, default in _NUMBERS.items()} | {
    "failondataloss": ConfigKey("failondataloss", "BOOLEAN", True),
    "includeheaders": ConfigKey("includeheaders", "BOOLEAN", False),
    "kafka.acks": ConfigKey("acks", "STRING", -1, validator=_acks),
    "kafka.compression.type": ConfigKey("compression.type", "STRING", "zstd", validator=_COMPRESSION_TYPES),
}
"""Options with a type, by lower-case name; a Kafka config's errors show its own name, as the connector's do."""

_NAMES_OF_SOURCE = (
    "stratalog.root", "subscribe", "subscribePattern", "assign", "failOnDataLoss", "includeHeaders",
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition",
    "kafka.isolation.level", "isolation.level",
    "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
)  # fmt: skip
_NAMES_OF_SINK = (
    "stratalog.root", "topic", "stratalog.timestamp.column", "txnAppId", "txnVersion", "kafka.acks",
    "kafka.delivery.timeout.ms", "kafka.max.block.ms", "kafka.batch.size", "kafka.buffer.memory",
    "kafka.compression.type",
    "checkpointLocation", "queryName",
)  # fmt: skip
OF_SOURCE = frozenset(name.lower() for name in _NAMES_OF_SOURCE)
OF_SINK = frozenset(name.lower() for name in _NAMES_OF_SINK)
"""Options with an effect, by lower-case name; the last two are Spark's own, which passes them on."""
_SPELLED = {name.lower(): name for name in (*_NAMES_OF_SOURCE, *_NAMES_OF_SINK, "groupIdPrefix")}
_WITHOUT_EFFECT = {
    "kafka.bootstrap.servers": f"{ROOT} is the cluster",
    "groupidprefix": "a query is in the group that kafka.group.id names, or in none",
    "kafka.group.id": "only a streaming read is in a group",
    "group.id": "only a streaming read is in a group",
    "path": "topic is the topic of a write, subscribe that of a read",
}
