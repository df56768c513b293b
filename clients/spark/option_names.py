"""Every option of the source and the sink, in one list: whose it is, its type and default, what comes of it. Pure.

Those of a streaming query in a group are in `group.options`. Source of names, defaults and refusals:
KafkaSourceProvider (spark-sql-kafka-0-10). `docs/spark.md` has the same rows, which a test compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

from stratalog.storage.config_def import ConfigKey, Validator, between, one_of
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.objects.store_settings import STORE_SETTINGS
from stratalog.storage.topic_config import INT_MAX

ROOT = "stratalog.root"
SOURCE_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The source's columns without options."""
MORE_COLUMNS = ("headers", "leaderEpoch")
"""Those that `columns` may name, too: the record's headers, and the leader epoch under which it was written."""
STORAGE = "stratalog.storage."
"""Prefix of the settings of object stores (`storage.objects.store_settings`)."""
KAFKA = "kafka."
"""Prefix of configs of Kafka's clients. Those that are not known here have no effect, as a job may bring any."""
_OF_OTHERS = (KAFKA, "spark.", "databricks.", "__")
"""Prefixes of names that others give a meaning."""
_OF_TABLES = frozenset({"provider", "location", "owner", "comment", "external", "is_managed_location", "collation"})
"""What Spark adds for `CREATE TABLE`, which it then refuses; also each option a second time, behind `option.`."""
_MISSPELLED = 0.96
"""Similarity from which a `kafka.` option that nobody knows is a known one misspelled, as `difflib` has it: no two
names of Kafka's clients are that similar. `kafka.isolation.levl` has 0.98."""


class Comes(Enum):
    """What comes of an option."""

    TAKEN = "it has an effect"
    REFUSED = "InvalidConfigError"
    IGNORED = "a warning in the log"


class Option(NamedTuple):
    """One option of the source, the sink or both.

    why  the text of the refusal, or the reason in the warning
    key  type and default; None: `options` reads the text itself
    """

    name: str
    comes: Comes = Comes.TAKEN
    why: str = ""
    key: ConfigKey | None = None


def _typed(name: str, type_: Any, default: Any, validator: Validator | None = None) -> Option:
    # a Kafka config's errors show its own name, as the connector's do
    return Option(name, key=ConfigKey(name.lower().removeprefix("kafka."), type_, default, validator=validator))


def _refused(name: str, why: str) -> Option:
    return Option(f"kafka.{name}", Comes.REFUSED, why)


def _ignored(name: str, why: str) -> Option:
    return Option(name, Comes.IGNORED, why)


def _acks(text: str) -> int:
    known = {"all": -1, "-1": -1, "1": 1}
    if text.strip().lower() not in known:
        raise ValueError("the sink waits for the leader (1) or all in-sync replicas (all). Use 1 or all.")
    return known[text.strip().lower()]


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
_NO_GROUP = "only a streaming read is in a group"
_ISOLATION_LEVELS = one_of("read_committed", "read_uncommitted")

OF_BOTH = (
    Option(ROOT),
    *(_typed(f"{STORAGE}{key.name}", key.type, key.default) for key in STORE_SETTINGS),
    _ignored("kafka.bootstrap.servers", f"{ROOT} is the cluster"),
    _ignored("path", "topic is the topic of a write, subscribe that of a read"),
)
_OF_SOURCE = (
    Option("subscribe"), Option("subscribePattern"), Option("assign"),
    Option("startingOffsets"), Option("startingTimestamp"), Option("startingOffsetsByTimestamp"),
    Option("startingOffsetsByTimestampStrategy"),
    Option("endingOffsets"), Option("endingTimestamp"), Option("endingOffsetsByTimestamp"),
    _typed("failOnDataLoss", "BOOLEAN", True),
    _typed("includeHeaders", "BOOLEAN", False), Option("columns"),
    _typed("maxOffsetsPerTrigger", "INT", None), _typed("minOffsetsPerTrigger", "INT", None), Option("maxTriggerDelay"),
    Option("maxBytesPerTrigger"),
    _typed("minPartitions", "INT", None), _typed("maxRecordsPerPartition", "INT", None),
    _typed("kafka.isolation.level", "STRING", "read_uncommitted", _ISOLATION_LEVELS), Option("isolation.level"),
    _typed("kafka.client.rack", "STRING", ""), Option("client.rack"),
    _typed("kafkaConsumer.pollTimeoutMs", "INT", 120_000, between(0, INT_MAX)),
    _typed("fetchOffset.numRetries", "INT", 3, between(0, INT_MAX)),
    _typed("fetchOffset.retryIntervalMs", "INT", 1_000, between(0, INT_MAX)),
    _refused("auto.offset.reset", _AUTO_OFFSET_RESET),
    _refused(
        "key.deserializer",
        "Kafka option 'key.deserializer' is not supported as keys are deserialized as byte arrays with "
        "ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize the keys.",
    ),
    _refused(
        "value.deserializer",
        "Kafka option 'value.deserializer' is not supported as values are deserialized as byte arrays with "
        "ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize the values.",
    ),
    _refused("enable.auto.commit", "Kafka option 'enable.auto.commit' is not supported. Leave it out."),
    _refused("interceptor.classes", "Kafka option 'interceptor.classes' is not supported. Leave it out."),
    _ignored("groupIdPrefix", "a query is in the group that kafka.group.id names, or in none"),
    _ignored("kafka.group.id", _NO_GROUP), _ignored("group.id", _NO_GROUP),
)  # fmt: skip
_OF_SINK = (
    Option("topic"),
    Option("stratalog.timestamp.column"),
    Option("txnAppId"), _typed("txnVersion", "INT", None),
    _typed("kafka.acks", "STRING", -1, _acks),
    _typed("kafka.delivery.timeout.ms", "INT", 120_000), _typed("kafka.max.block.ms", "INT", 60_000),
    _typed("kafka.batch.size", "INT", 16_384), _typed("kafka.buffer.memory", "INT", 33_554_432),
    _typed("kafka.compression.type", "STRING", "zstd", one_of("none", "gzip", "snappy", "lz4", "zstd")),
    _refused(
        "key.serializer",
        "Kafka option 'key.serializer' is not supported as keys are serialized with ByteArraySerializer. "
        "Leave it out: keys are strings or bytes.",
    ),
    _refused(
        "value.serializer",
        "Kafka option 'value.serializer' is not supported as value are serialized with ByteArraySerializer. "
        "Leave it out: values are strings or bytes.",
    ),
    _ignored("kafka.group.id", _NO_GROUP), _ignored("group.id", _NO_GROUP),
    Option("checkpointLocation"), Option("queryName"),  # Spark's own, which it passes on
)  # fmt: skip


class Options:
    """The options of one side."""

    def __init__(self, *options: Option) -> None:
        self._by_name = {option.name.lower(): option for option in options}

    @cached_property
    def taken(self) -> frozenset[str]:
        """The names, in lower case, of those with an effect."""
        return frozenset(name for name, option in self._by_name.items() if option.comes is Comes.TAKEN)

    def spelled(self, comes: Comes) -> set[str]:
        """Names as the documentation has them."""
        return {option.name for option in self._by_name.values() if option.comes is comes}

    def check(self, params: Mapping[str, str]) -> None:
        """InvalidConfigError, in the connector's words, for an option that is refused; `params` by lower-case names."""
        for name, option in self._by_name.items():
            if option.comes is Comes.REFUSED and name in params:
                raise InvalidConfigError(option.why)

    def without_effect(self, names: Iterable[str]) -> dict[str, str]:
        """Why options do nothing, by their names in order; a reason is empty for a name that nobody knows.

        >>> OF_SINK.without_effect(["kafka.linger.ms", "topic"])
        {'kafka.linger.ms': ''}
        """
        ignored = [(name, self._by_name.get(name)) for name in sorted({name.lower() for name in names} - self.taken)]
        return {option.name if option else name: option.why if option else "" for name, option in ignored}

    def check_names(self, names: Iterable[str], more: Iterable[str] = ()) -> None:
        """InvalidConfigError for a name that is no option of either side, with the nearest one; but for settings of
        stores, which `StoreSettings` checks.

        more  further options that have an effect here, as those of a group; Kafka's are told from misspelled ones
        """
        given = {name.lower() for name in names} - self._by_name.keys()
        candidates = {option.lower(): option for option in more}
        known = candidates.keys() | OF_SOURCE._by_name.keys() | OF_SINK._by_name.keys()
        unknown = sorted(n for n in given - known - _OF_TABLES if not n.startswith((STORAGE, "option.")))
        if not unknown:
            return
        from difflib import get_close_matches  # a Python worker that only reads loads no more than it needs

        candidates |= {name: option.name for name, option in self._by_name.items()}
        candidates |= {name.removeprefix(KAFKA): option for name, option in candidates.items()}
        for name in unknown:
            nearest = get_close_matches(name, candidates, 1, _MISSPELLED if name.startswith(KAFKA) else 0.6)
            if nearest or not name.startswith(_OF_OTHERS):
                hint = f" (did you mean {candidates[nearest[0]]}?)" if nearest else ""
                raise InvalidConfigError(f"Unknown option {name}{hint}. Correct the name, or leave it out.")

    def value(self, params: Mapping[str, str], name: str) -> Any:
        """The typed value of an option, or its default; `params` by lower-case names."""
        key = self._by_name[name.lower()].key
        assert key is not None
        if name.lower() not in params:
            return key.default
        try:
            return key.parse(params[name.lower()])
        except InvalidConfigError as reason:
            if key.type not in ("INT", "BOOLEAN") or name.startswith(STORAGE):
                raise
            # the connector reads these itself, with Scala's parsers
            wanted = "true or false" if key.type == "BOOLEAN" else "a whole number"
            raise InvalidConfigError(
                f'option {name.lower()}: For input string: "{params[name.lower()]}". {reason}. Give {wanted}.'
            ) from reason


OF_SOURCE = Options(*OF_BOTH, *_OF_SOURCE)
OF_SINK = Options(*OF_BOTH, *_OF_SINK)
"""Options by side."""
