"""The options of the Spark source and sink as values, with the Kafka connector's names, defaults and error texts. Pure.

`stratalog.root` replaces the connector's `kafka.bootstrap.servers`; every other name is the connector's, in any case.
A wrong option raises InvalidConfigError with the connector's text. Source: KafkaSourceProvider (spark-sql-kafka-0-10).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from stratalog.clients.spark.option_names import (
    MORE_COLUMNS,
    OF_SINK,
    OF_SOURCE,
    ROOT,
    SOURCE_COLUMNS,
    STORAGE,
    Options,
)
from stratalog.storage.errors import InvalidConfigError, StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.store_settings import FROM_ENVIRONMENT, StoreSettings
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LONG_MAX

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
DEFAULT_MAX_TRIGGER_DELAY = "15m"

T = TypeVar("T")

_log = line_logger(__name__)


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
    """Options of a source. Times in ms, limits in records or, of `max_bytes_per_trigger`, bytes on storage.

    rack  the `broker.rack` whose replicas are near the executors
    """

    root: str
    subscription: Subscription
    starting: OffsetRangeLimit
    ending: OffsetRangeLimit
    fail_on_data_loss: bool = True
    columns: tuple[str, ...] = SOURCE_COLUMNS
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    poll_timeout_ms: int = 120_000
    num_retries: int = 3
    retry_interval_ms: int = 1_000
    isolation_level: str = "read_uncommitted"
    rack: str = ""
    group: GroupOptions | None = None
    storage: StoreSettings = FROM_ENVIRONMENT


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
    storage: StoreSettings = FROM_ENVIRONMENT
    transaction: TransactionOptions | None = None


Warn = Callable[[str], None]


def load_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of `read` or `readStream`, where Spark does not say which of them it is, as at `.load()`.

    InvalidConfigError for what both refuse, and for what is wrong with a stream's group.
    """

    def silent(_: str) -> None:
        """The reader that is made of the options warns."""

    try:
        return stream_options(options, silent)
    except StratalogError as of_stream:
        refusal = of_stream
    try:
        found = batch_options(options, silent)
    except StratalogError as of_batch:
        raise (of_batch if any(name.lower().startswith("ending") for name in options) else refusal) from None
    _group(_lowered(options))
    return found


def stream_options(options: Mapping[str, str], warn: Warn | None = None) -> SourceOptions:
    """The options of `readStream`. What has no effect is warned of in the log, or by `warn`."""
    params = _lowered(options)
    for name in ("endingoffsets", "endingoffsetsbytimestamp", "endingtimestamp"):
        if name in params:
            what = "offset" if name == "endingoffsets" else "timestamp"
            raise InvalidConfigError(f"ending {what} not valid in streaming queries. Leave it out, or read in batch.")
    _validate(params)
    group = _group(params)
    of_a_group = frozenset() if group is None else group.names
    _check_names(OF_SOURCE, params, of_a_group, warn)
    return replace(_source_options(params, OffsetLimit(LATEST)), group=group)


def batch_options(options: Mapping[str, str], warn: Warn | None = None) -> SourceOptions:
    """The options of `read`. What has no effect is warned of in the log, or by `warn`."""
    params = _lowered(options)
    starting = _limit(params, "starting", OffsetLimit(EARLIEST))
    if starting == OffsetLimit(LATEST):
        raise InvalidConfigError(
            "starting offset can't be latest for batch queries on Kafka. Use earliest, offsets or a time."
        )
    for partition in _partitions_at(starting, LATEST):
        raise InvalidConfigError(
            f"startingOffsets for {partition} can't be latest for batch queries on Kafka. Give an offset, or -2 for "
            "earliest."
        )
    if starting == OffsetLimit(GROUP):
        raise InvalidConfigError(
            "startingOffsets=group is for streaming queries: a batch query commits no offsets. Use earliest or offsets."
        )
    ending = _limit(params, "ending", OffsetLimit(LATEST))
    if ending == OffsetLimit(EARLIEST):
        raise InvalidConfigError(
            "ending offset can't be earliest for batch queries on Kafka. Use latest, offsets or a time."
        )
    for partition in _partitions_at(ending, EARLIEST):
        raise InvalidConfigError(
            f"ending offset for {partition} can't be earliest for batch queries on Kafka. Give an offset, or -1 for "
            "latest."
        )
    _validate(params)
    for name in ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        if name.lower() in params:
            (warn or warn_once)(f"{name} option ignored in batch queries")
    _check_names(OF_SOURCE, params, frozenset(), warn)
    return _source_options(params, OffsetLimit(EARLIEST))


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The options of `write` and `writeStream`."""
    params = _lowered(options)
    OF_SINK.check(params)
    if ROOT not in params:
        raise InvalidConfigError(f"Option '{ROOT}' must be specified for configuring Kafka producer. {_SET_ROOT}")
    if ("txnappid" in params) != ("txnversion" in params):
        raise InvalidConfigError("txnAppId and txnVersion must be given together. Set both, or leave both out.")
    transaction = _transaction(params)
    of_transactions = frozenset() if transaction is None else transaction.names
    _check_names(OF_SINK, params, of_transactions)
    topic = params.get("topic")
    return SinkOptions(
        root=params[ROOT],
        topic=topic.strip() if topic is not None else None,
        acks=OF_SINK.value(params, "kafka.acks"),
        delivery_timeout_ms=OF_SINK.value(params, "kafka.delivery.timeout.ms"),
        max_block_ms=OF_SINK.value(params, "kafka.max.block.ms"),
        batch_size=OF_SINK.value(params, "kafka.batch.size"),
        buffer_memory=OF_SINK.value(params, "kafka.buffer.memory"),
        compression_type=OF_SINK.value(params, "kafka.compression.type"),
        timestamp_column=params.get("stratalog.timestamp.column"),
        txn_app_id=params.get("txnappid"),
        txn_version=OF_SINK.value(params, "txnVersion"),
        storage=_storage(params),
        transaction=transaction,
    )


def _transaction(params: Mapping[str, str]) -> TransactionOptions | None:
    if not any("transactional" in name for name in params):
        return None
    from stratalog.clients.spark.transaction.options import transaction_options

    return transaction_options(params)


def _check_names(side: Options, params: Mapping[str, str], more: frozenset[str], warn: Warn | None = None) -> None:
    """Refuse what is no option of any side, and warn of what has no effect; `more`: options of a group and the like."""
    ignored = side.without_effect(name for name in params if name not in more)
    if not all(ignored.values()):  # names that this side does not know
        from stratalog.clients.spark.transaction.options import OF_MEMBERS_AND_TRANSACTIONS

        side.check_names(params, OF_MEMBERS_AND_TRANSACTIONS)
    for name, why in ignored.items():
        (warn or warn_once)(f"option {name} has no effect{why and ': '}{why}")


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
    offsets = _from_json(
        text,
        '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}',
        lambda topics: _per_partition({topic: offsets for topic, offsets in topics.items() if "@" not in topic}),
    )
    for partition, offset in offsets.items():
        if not EARLIEST <= offset <= LONG_MAX:
            raise InvalidConfigError(
                f"{offset} of {partition} is no offset. Give one of 0 to {LONG_MAX}, -1 for the latest, or -2 for the "
                "earliest."
            )
    return offsets


def parse_timestamps(text: str) -> dict[TopicPartition, int]:
    """`{"topicA":{"0":123456789}}`, ms."""
    times = '{"0": 123456789, "1": 123456789}'
    found = _from_json(text, f'{{"topicA": {times},\n"topicB": {times}}}', _per_partition)
    return {partition: _time_ms(str(timestamp)) for partition, timestamp in found.items()}


def _time_ms(text: str) -> int:
    with suppress(ValueError):
        if 0 <= (timestamp_ms := int(text)) <= LONG_MAX:
            return timestamp_ms
    raise InvalidConfigError(f"Expected a single long value, got {text}. Give milliseconds since 1970, at least 0.")


def _from_json(text: str, example: str, read: Callable[[Any], T]) -> T:
    try:
        return read(json.loads(text))
    except (ValueError, AttributeError, TypeError) as reason:
        raise InvalidConfigError(f"Expected e.g. {example}, got {text}. Write the option in this form.") from reason


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
            f"hour (h), or day (d). E.g. 50s, 100ms, or 250us.\nFailed to parse time string: {text}. Give a number "
            "with one of these units."
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
        return GlobalTimestamp(_time_ms(params[f"{side}timestamp"].strip()), latest_on_no_match)
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
        raise InvalidConfigError(
            f"No value found for '{text.upper()}'. Set startingOffsetsByTimestampStrategy to error or latest."
        )
    return text.upper() == "LATEST"


_SET_ROOT = "Set it to the cluster's metadata root, such as data/cluster/metadata."
_STRATEGIES = ("subscribe", "subscribepattern", "assign")


def _validate(params: Mapping[str, str]) -> None:
    _subscription(params)
    for name in ("minPartitions", "maxRecordsPerPartition"):
        number = OF_SOURCE.value(params, name)
        if number is not None and number <= 0:
            # the connector prints the second name as its own lower-case key
            shown = name if name == "minPartitions" else name.lower()
            raise InvalidConfigError(f"{shown} must be positive. Give a number above 0, or leave it out.")
    OF_SOURCE.check(params)
    if ROOT not in params:
        raise InvalidConfigError(f"Option '{ROOT}' must be specified for configuring Kafka consumer. {_SET_ROOT}")
    least = OF_SOURCE.value(params, "minOffsetsPerTrigger")
    most = OF_SOURCE.value(params, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise InvalidConfigError(
            f"The value of minOffsetPerTrigger({least}) is higher than the maxOffsetsPerTrigger({most}). "
            "Raise the second or lower the first."
        )


def _subscription(params: Mapping[str, str]) -> Subscription:
    given = [name for name in _STRATEGIES if name in params]
    if len(given) != 1:
        how_many = "One of the following options must be" if not given else "Only one of the following options can be"
        raise InvalidConfigError(
            f"{how_many} specified for Kafka source: {', '.join(_STRATEGIES)}. See the docs for more details. "
            "Set exactly one of them."
        )
    value = params[given[0]]
    if given[0] == "assign":
        if not value.strip().startswith("{"):
            raise InvalidConfigError(
                f"No topicpartitions to assign as specified value for option 'assign' is '{value}'. "
                'Write JSON such as {"events":[0,1]}.'
            )
        return Assign(parse_partitions(value))
    if given[0] == "subscribe":
        topics = tuple(t.strip() for t in value.split(",") if t.strip())
        if not topics:
            raise InvalidConfigError(
                f"No topics to subscribe to as specified value for option 'subscribe' is '{value}'. Name a topic."
            )
        return Subscribe(topics)
    return SubscribePattern(_pattern(value))


def _pattern(value: str) -> str:
    if not value.strip():
        raise InvalidConfigError(
            f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is '{value}'. "
            "Give a regular expression."
        )
    try:
        re.compile(value.strip())
    except re.error as reason:
        raise InvalidConfigError(
            f"'subscribePattern' is not a regular expression: '{value}' ({reason}). Correct the expression."
        ) from reason
    return value.strip()


def _source_options(params: Mapping[str, str], default_start: OffsetLimit) -> SourceOptions:
    short = {f"kafka.{name}": params[name] for name in ("isolation.level", "client.rack") if name in params}
    given = {**short, **params}
    return SourceOptions(
        root=params[ROOT],
        subscription=_subscription(params),
        starting=_limit(params, "starting", default_start),
        ending=_limit(params, "ending", OffsetLimit(LATEST)),
        fail_on_data_loss=OF_SOURCE.value(params, "failOnDataLoss"),
        columns=_columns(params),
        min_partitions=OF_SOURCE.value(params, "minPartitions"),
        max_records_per_partition=OF_SOURCE.value(params, "maxRecordsPerPartition"),
        max_offsets_per_trigger=OF_SOURCE.value(params, "maxOffsetsPerTrigger"),
        max_bytes_per_trigger=_bytes_limit(params),
        min_offsets_per_trigger=OF_SOURCE.value(params, "minOffsetsPerTrigger"),
        max_trigger_delay_ms=parse_duration_ms(params.get("maxtriggerdelay", DEFAULT_MAX_TRIGGER_DELAY)),
        poll_timeout_ms=OF_SOURCE.value(params, "kafkaConsumer.pollTimeoutMs"),
        num_retries=OF_SOURCE.value(params, "fetchOffset.numRetries"),
        retry_interval_ms=OF_SOURCE.value(params, "fetchOffset.retryIntervalMs"),
        isolation_level=OF_SOURCE.value(given, "kafka.isolation.level"),
        rack=OF_SOURCE.value(given, "kafka.client.rack"),
        storage=_storage(params),
    )


def _group(params: Mapping[str, str]) -> GroupOptions | None:
    starts_at_group = _limit(params, "starting", OffsetLimit(LATEST)) == OffsetLimit(GROUP)
    if not starts_at_group and not any("group" in name or "auto.offset.reset" in name for name in params):
        return None
    from stratalog.clients.spark.group.options import group_options

    return group_options(params, starts_at_group=starts_at_group)


def source_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """The source's columns in order; for schema(), before anything else is checked. InvalidConfigError."""
    return _columns(_lowered(options))


def _columns(params: Mapping[str, str]) -> tuple[str, ...]:
    includes_headers = OF_SOURCE.value(params, "includeHeaders")
    known = (*SOURCE_COLUMNS, *MORE_COLUMNS)
    if "columns" not in params:
        return (*SOURCE_COLUMNS, *(["headers"] * includes_headers))
    names = tuple(name.strip() for name in params["columns"].split(",") if name.strip())
    unknown = [name for name in names if name not in known]
    if unknown or not names or len(set(names)) < len(names):
        raise InvalidConfigError(
            f"columns={params['columns']}: name each of the columns wanted once, of {', '.join(known)}"
        )
    if includes_headers and "headers" not in names:
        raise InvalidConfigError(f"includeHeaders=true, but columns={params['columns']} leaves out headers: add it")
    return names


_SIZE = re.compile(r"([0-9]+)([kmgt]?)b?")


def _bytes_limit(params: Mapping[str, str]) -> int | None:
    """`maxBytesPerTrigger` as Delta's source takes it: bytes, or with a unit, `10m` for 10 MiB."""
    text = params.get("maxbytespertrigger")
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip().lower())
    size_bytes = int(match[1]) << 10 * ("", "k", "m", "g", "t").index(match[2]) if match else 0
    if size_bytes <= 0:
        raise InvalidConfigError(
            f"Invalid value '{text}' for option 'maxBytesPerTrigger': give a number of bytes, as 9000000, or with a "
            "unit, as 10m"
        )
    return size_bytes


def _storage(params: Mapping[str, str]) -> StoreSettings:
    given = {name.removeprefix(STORAGE): text for name, text in params.items() if name.startswith(STORAGE)}
    try:
        return StoreSettings.of(given)
    except InvalidConfigError as reason:
        raise InvalidConfigError(f"{STORAGE}*: {reason}") from None
