"""The Spark options parse to the connector's defaults and refuse what it refuses, in its words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from stratalog.clients.spark.group.options import GROUP_ID
from stratalog.clients.spark.option_names import OF_SINK, OF_SOURCE, SOURCE_COLUMNS, Comes, Options
from stratalog.clients.spark.options import (
    EARLIEST,
    LATEST,
    Assign,
    GlobalTimestamp,
    OffsetLimit,
    SinkOptions,
    SpecificOffsets,
    SpecificTimestamps,
    Subscribe,
    SubscribePattern,
    batch_options,
    load_options,
    parse_duration_ms,
    sink_options,
    source_columns,
    stream_options,
    warn_once,
)
from stratalog.clients.spark.transaction.options import OF_MEMBERS_AND_TRANSACTIONS, TRANSACTIONAL_ID
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.records import TopicPartition

BASE = {"stratalog.root": "r", "subscribe": "t"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_defaults_are_the_connectors() -> None:
    stream, batch = stream_options(BASE), batch_options(BASE)
    assert (stream.starting, batch.starting) == (OffsetLimit(LATEST), OffsetLimit(EARLIEST))
    assert batch.ending == OffsetLimit(LATEST)
    assert stream.fail_on_data_loss
    assert stream.columns == SOURCE_COLUMNS
    assert stream.max_bytes_per_trigger is None
    assert stream.max_trigger_delay_ms == 900_000
    assert (stream.num_retries, stream.retry_interval_ms) == (3, 1000)
    assert stream.min_partitions is stream.max_records_per_partition is stream.max_offsets_per_trigger is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": " a, b ,"}, Subscribe(("a", "b"))),
        ({"subscribePattern": " access-.* "}, SubscribePattern("access-.*")),
        ({"ASSIGN": '{"t":[0,1]}'}, Assign((T0, T1))),
    ],
)
def test_subscription(options: Mapping[str, str], expected: object) -> None:
    assert stream_options({"stratalog.root": "r", **options}).subscription == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "Earliest"}, OffsetLimit(EARLIEST)),
        ({"startingOffsets": '{"t":{"0":23,"1":-1}}'}, SpecificOffsets({T0: 23, T1: -1})),
        ({"startingOffsetsByTimestamp": '{"t":{"0":7}}', "startingOffsets": "latest"}, SpecificTimestamps({T0: 7})),
        ({"startingTimestamp": " 9 ", "startingOffsetsByTimestamp": "x"}, GlobalTimestamp(9)),
        ({"startingTimestamp": "9", "startingOffsetsByTimestampStrategy": "latest"}, GlobalTimestamp(9, True)),
    ],
)
def test_starting_position_by_preference(options: Mapping[str, str], expected: object) -> None:
    assert stream_options({**BASE, **options}).starting == expected


STRATEGIES = "subscribe, subscribepattern, assign. See the docs for more details."
EXPECTED_TIMESTAMPS = """Expected e.g. {"topicA": {"0": 123456789, "1": 123456789},
"topicB": {"0": 123456789, "1": 123456789}}"""
STREAM_REFUSALS = [
    (
        {"stratalog.root": "r"},
        f"One of the following options must be specified for Kafka source: {STRATEGIES}",
    ),
    (
        {**BASE, "assign": "{}"},
        f"Only one of the following options can be specified for Kafka source: {STRATEGIES}",
    ),
    ({"subscribe": "t"}, "Option 'stratalog.root' must be specified for configuring Kafka consumer"),
    ({**BASE, "subscribe": " , "}, "No topics to subscribe to as specified value for option 'subscribe' is ' , '"),
    (
        {"stratalog.root": "r", "assign": "t"},
        "No topicpartitions to assign as specified value for option 'assign' is 't'",
    ),
    (
        {"stratalog.root": "r", "assign": "{t}"},
        'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got {t}',
    ),
    (
        {"stratalog.root": "r", "subscribePattern": " "},
        "Pattern to subscribe is empty as specified value for option 'subscribePattern' is ' '",
    ),
    ({**BASE, "endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
    ({**BASE, "endingOffsetsByTimestamp": "{}"}, "ending timestamp not valid in streaming queries"),
    ({**BASE, "minPartitions": "0"}, "minPartitions must be positive"),
    ({**BASE, "maxRecordsPerPartition": "0"}, "maxrecordsperpartition must be positive"),
    ({**BASE, "startingTimestamp": "soon"}, "Expected a single long value, got soon"),
    (
        {**BASE, "startingOffsets": "sometime"},
        'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got sometime',
    ),
    (
        {**BASE, "startingOffsetsByTimestamp": "x"},
        EXPECTED_TIMESTAMPS + ", got x",
    ),
    (
        {**BASE, "minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"},
        "The value of minOffsetPerTrigger(10) is higher than the maxOffsetsPerTrigger(5).",
    ),
    ({**BASE, "kafka.enable.auto.commit": "true"}, "Kafka option 'enable.auto.commit' is not supported"),
    ({**BASE, "failOnDataLoss": "maybe"}, 'option failondataloss: For input string: "maybe"'),
]


@pytest.mark.parametrize(("options", "text"), STREAM_REFUSALS)
def test_stream_refusals_in_the_connectors_words(options: Mapping[str, str], text: str) -> None:
    with pytest.raises(InvalidConfigError) as refusal:
        stream_options(options)
    assert str(refusal.value).startswith(text)  # then what to do


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        (
            {"startingOffsets": '{"t":{"0":-1}}'},
            "startingOffsets for t-0 can't be latest for batch queries on Kafka",
        ),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "ending offset for t-0 can't be earliest for batch queries on Kafka"),
    ],
)
def test_batch_refusals_in_the_connectors_words(options: Mapping[str, str], text: str) -> None:
    with pytest.raises(InvalidConfigError) as refusal:
        batch_options({**BASE, **options})
    assert str(refusal.value).startswith(text)  # then what to do


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("15m", 900_000), ("250us", 0), ("100ms", 100), ("50s", 50_000), ("2min", 120_000), ("1h", 3_600_000), ("7", 7)],
)
def test_time_strings(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("1", 1), (" 12b", 12), ("3K", 3 << 10), ("10m", 10 << 20), ("2GB", 2 << 30)]
)
def test_a_limit_in_bytes(text: str, size_bytes: int) -> None:
    assert stream_options({**BASE, "maxBytesPerTrigger": text}).max_bytes_per_trigger == size_bytes


def test_columns_and_the_rack() -> None:
    assert source_columns({"Columns": " value, offset,headers "}) == ("value", "offset", "headers")
    assert source_columns({"includeHeaders": "true"}) == (*SOURCE_COLUMNS, "headers")
    for name in ("client.rack", "kafka.client.rack"):
        assert batch_options({**BASE, name: "east"}).rack == "east"


def test_a_wrong_time_string_is_named() -> None:
    with pytest.raises(InvalidConfigError, match="Failed to parse time string: 5 fortnights"):
        parse_duration_ms("5 fortnights")


@pytest.mark.parametrize("name", ["kafka.transactional.id", "transactional.id", "KAFKA.Transactional.Id"])
def test_a_transactional_id_has_two_names(name: str) -> None:
    options = sink_options({"stratalog.root": "r", name: "Copy", "kafka.sasl.username": "u"})
    assert options.transaction is not None
    assert options.transaction.transactional_id == "Copy"
    assert options.transaction.producer.transaction_timeout_ms == 30_000
    assert options.transaction.connection == {"sasl.username": "u"}
    assert options.acks == -1


def test_kafkas_configs_of_a_transaction(caplog: pytest.LogCaptureFixture) -> None:
    given = {"kafka.transaction.timeout.ms": "5000", "kafka.request.timeout.ms": "7000", "stratalog.listener": "IN"}
    options = sink_options({"stratalog.root": "r", "kafka.transactional.id": "copy", **given})
    assert options.transaction is not None
    producer = options.transaction.producer
    assert (producer.transaction_timeout_ms, producer.request_timeout_ms, options.transaction.listener) == (
        *(5_000, 7_000, "IN"),
    )
    assert not caplog.records


def test_sink_options() -> None:
    assert sink_options({"stratalog.root": "r"}) == SinkOptions("r")
    assert sink_options({"stratalog.root": "r", "Topic": " t ", "kafka.acks": "1"}) == SinkOptions("r", "t", 1)


@pytest.mark.parametrize(
    ("read", "options", "text"),
    [
        (sink_options, {}, "Option 'stratalog.root' must be specified"),
        (sink_options, {"stratalog.root": "r", "kafka.transactional.id": " "}, "must not be empty"),
        (
            sink_options,
            {"stratalog.root": "r", "kafka.transactional.id": "a", "transactional.id": "b"},
            "are two names of one option",
        ),
        (
            sink_options,
            {"stratalog.root": "r", "kafka.transactional.id": "a", "kafka.acks": "1"},
            "Cannot set a transactional.id without also enabling idempotence",
        ),
        (sink_options, {"stratalog.root": "r", "kafka.key.serializer": "x"}, "as keys are serialized with Byte"),
        (sink_options, {"stratalog.root": "r", "kafka.acks": "0"}, "Invalid value 0 for configuration acks"),
        (source_columns, {"includeHeaders": "yes"}, 'For input string: "yes"'),
        (source_columns, {"columns": "value,key,values"}, "name each of the columns wanted once, of key, value, topic"),
        (source_columns, {"columns": " ,"}, "name each of the columns wanted once"),
        (source_columns, {"columns": "key,key"}, "name each of the columns wanted once"),
        (source_columns, {"columns": "key", "includeHeaders": "true"}, "leaves out headers: add it"),
        (stream_options, {**BASE, "maxBytesPerTrigger": "0"}, "Invalid value '0' for option 'maxBytesPerTrigger'"),
        (stream_options, {**BASE, "maxBytesPerTrigger": "lots"}, "Invalid value 'lots' for option"),
        (stream_options, {**BASE, "startingOffsets": '{"t":{"0":-3}}'}, "-3 of t-0 is no offset. Give one of 0 to"),
        (stream_options, {**BASE, "startingOffsets": '{"t":{"0":9223372036854775808}}'}, "of t-0 is no offset"),
        (batch_options, {**BASE, "endingOffsets": '{"t":{"0":-4}}'}, "-4 of t-0 is no offset"),
        (
            stream_options,
            {**BASE, "startingTimestamp": "-1"},
            "Expected a single long value, got -1. Give milliseconds",
        ),
        (batch_options, {**BASE, "endingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "a single long value, got -1"),
        (stream_options, {**BASE, "fetchOffset.numRetries": "-1"}, 'For input string: "-1"'),
    ],
)
def test_other_refusals(read: Callable[[Mapping[str, str]], object], options: Mapping[str, str], text: str) -> None:
    with pytest.raises(InvalidConfigError, match=text):
        read(options)


@pytest.mark.parametrize(
    ("parse", "name", "text"),
    [
        (stream_options, "startingOffset", "Unknown option startingoffset (did you mean startingOffsets?). Correct"),
        (batch_options, "failOnDataLos", "(did you mean failOnDataLoss?)"),
        (stream_options, "stratalog.group.mod", "(did you mean stratalog.group.mode?)"),
        (stream_options, "kafka.isolation.levl", "(did you mean kafka.isolation.level?)"),
        (stream_options, "kafka.group.idd", "(did you mean kafka.group.id?)"),
        (stream_options, "xyzzy", "Unknown option xyzzy. Correct the name, or leave it out."),
        (sink_options, "stratalog.tiemstamp.column", "(did you mean stratalog.timestamp.column?)"),
        (sink_options, "kafka.transactional.ids", "(did you mean kafka.transactional.id?)"),
        (sink_options, "acks", "(did you mean kafka.acks?)"),
    ],
)
def test_an_option_that_nobody_knows_is_refused_with_the_nearest(
    parse: Callable[[Mapping[str, str]], object], name: str, text: str
) -> None:
    base = {"stratalog.root": "r"} if parse is sink_options else BASE
    with pytest.raises(InvalidConfigError, match=re.escape(text)):
        parse({**base, name: "1"})


OF_KAFKAS_CLIENTS = """
acks allow.auto.create.topics auto.commit.interval.ms batch.size bootstrap.servers buffer.memory check.crcs
client.dns.lookup client.id client.rack compression.gzip.level compression.lz4.level compression.type
compression.zstd.level connections.max.idle.ms default.api.timeout.ms delivery.timeout.ms enable.idempotence
enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id
group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms isolation.level linger.ms max.block.ms
max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms max.poll.records
max.request.size metadata.max.age.ms metadata.max.idle.ms metadata.recovery.strategy metric.reporters
metrics.num.samples metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
partitioner.ignore.keys receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms
retries retry.backoff.max.ms retry.backoff.ms sasl.client.callback.handler.class sasl.jaas.config
sasl.kerberos.service.name sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
sasl.login.read.timeout.ms sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism
sasl.oauthbearer.token.endpoint.url security.protocol security.providers send.buffer.bytes session.timeout.ms
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.ca.location ssl.cipher.suites
ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password
ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type
ssl.protocol ssl.provider ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
ssl.truststore.type transaction.timeout.ms transactional.id
"""


@pytest.mark.parametrize("side", [OF_SOURCE, OF_SINK])
def test_configs_of_kafkas_clients_are_not_taken_for_misspelled_ones(side: Options) -> None:
    side.check_names([f"kafka.{name}" for name in OF_KAFKAS_CLIENTS.split()], OF_MEMBERS_AND_TRANSACTIONS)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        *((options, text) for options, text in STREAM_REFUSALS if not any("nding" in name for name in options)),
        ({**BASE, "startingOffsets": "latest", "endingOffsets": "latest"}, "starting offset can't be latest for batch"),
        ({**BASE, "kafka.group.id": "g", "stratalog.group.mode": "shared"}, "Invalid value shared for configuration"),
        ({**BASE, "stratalog.group.mode": "share"}, "stratalog.group.mode needs kafka.group.id"),
        ({**BASE, "startingOffset": "latest"}, "Unknown option startingoffset (did you mean startingOffsets?)"),
    ],
)
def test_what_no_read_takes_is_refused_where_spark_does_not_say_which_it_is(
    options: Mapping[str, str], text: str
) -> None:
    with pytest.raises(InvalidConfigError) as refusal:
        load_options(options)
    assert str(refusal.value).startswith(text)


@pytest.mark.parametrize("options", [{"endingOffsets": "latest"}, {"startingOffsets": "latest"}, {"path": "p"}])
def test_what_one_kind_of_read_takes_is_loaded_without_a_warning(
    caplog: pytest.LogCaptureFixture, options: Mapping[str, str]
) -> None:
    warn_once.cache_clear()
    assert load_options({**BASE, **options}).root == "r"
    assert not caplog.messages


@pytest.mark.parametrize(
    ("parse", "options", "warnings"),
    [
        (stream_options, {"groupIdPrefix": "mine"}, ["groupIdPrefix has no effect: a query is in the group that"]),
        (batch_options, {"kafka.group.id": "mine"}, ["kafka.group.id has no effect: only a streaming read"]),
        (stream_options, {"kafka.session.timeout.ms": "9000"}, ["kafka.session.timeout.ms has no effect"]),
        (stream_options, {"kafka.group.id": "mine", "kafka.session.timeout.ms": "9000"}, []),
        (
            batch_options,
            {"kafka.Fetch.min.bytes": "9", "topic": "t2", "kafka.bootstrap.servers": "h:9092"},
            [
                "kafka.bootstrap.servers has no effect: stratalog.root is the cluster",
                "kafka.fetch.min.bytes has no effect",
                "topic has no effect",
            ],
        ),
        (
            batch_options,
            {"stratalog.group.mode": "share", "path": "p"},
            ["path has no effect: topic", "group.mode has"],
        ),
        (sink_options, {"kafka.linger.ms": "7", "__of.a.platform": "x"}, ["__of.a.platform", "kafka.linger.ms"]),
        (batch_options, {"option.subscribe": "t", "provider": "stratalog"}, ["option.subscribe has", "provider has"]),
        (sink_options, {"subscribe": "t2"}, ["subscribe has no effect"]),
        (sink_options, {"checkpointLocation": "/c", "queryName": "q", "kafka.acks": "all"}, []),
        (batch_options, {"kafka.isolation.level": "read_committed", "failOnDataLoss": "false"}, []),
    ],
)
def test_an_option_without_effect_is_warned_of_by_name(
    caplog: pytest.LogCaptureFixture,
    parse: Callable[[Mapping[str, str]], object],
    options: Mapping[str, str],
    warnings: Sequence[str],
) -> None:
    warn_once.cache_clear()
    base = {"stratalog.root": "r"} if parse is sink_options else BASE
    for _ in range(3):
        parse({**base, **options})
    assert len(caplog.messages) == len(warnings)  # once each
    for message, warning in zip(caplog.messages, warnings, strict=True):
        assert warning in message


OF_THE_CONNECTOR = [
    "kafka.bootstrap.servers", "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets",
    "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "failOnDataLoss", "minPartitions", "maxRecordsPerPartition",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "includeHeaders", "groupIdPrefix",
    "kafka.group.id", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
    "kafka.auto.offset.reset", "kafka.key.deserializer", "kafka.value.deserializer", "kafka.enable.auto.commit",
    "kafka.interceptor.classes", "topic", "kafka.key.serializer", "kafka.value.serializer",
]  # fmt: skip
"""The options of the connector's source and sink (KafkaSourceProvider, spark-sql-kafka-0-10 4.2.0)."""


def test_the_page_lists_every_option_as_tried_refused_or_ignored() -> None:
    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text(encoding="utf-8")
    section = page[page.index("## Options") : page.index("### Beside Kafka")]
    tried, refused, ignored = (
        set(re.findall(r"`([\w.]+)`", "".join(row.split("|")[1] for row in part.splitlines() if row.startswith("| `"))))
        for part in re.split("These are refused|These are accepted", section)
    )
    group = stream_options({**BASE, GROUP_ID: "g"}).group
    assert group is not None
    of_a_group = {name for name in group.names if name.startswith("stratalog.") or name.endswith("group.id")}
    of_transactions = {TRANSACTIONAL_ID, "transactional.id", "kafka.transaction.timeout.ms"}
    sides = (OF_SOURCE, OF_SINK)
    assert tried == set().union(*(side.spelled(Comes.TAKEN) for side in sides)) | of_a_group | of_transactions
    assert refused == set().union(*(side.spelled(Comes.REFUSED) for side in sides))
    assert ignored == set().union(*(side.spelled(Comes.IGNORED) for side in sides)) - of_a_group
    assert set(OF_THE_CONNECTOR) <= tried | refused | ignored
    assert len(tried) + len(refused) + len(ignored) == len(tried | refused | ignored)


SECRET = "hush-hush"
STORE = {
    "stratalog.storage.aws.endpoint.url": "http://localhost:1",
    "stratalog.storage.AWS.Secret.Access.Key": SECRET,
    "stratalog.storage.azure.storage.sas.token": f"sig={SECRET}",
}


def test_settings_of_stores_are_taken_in_any_case_and_secrets_are_not_shown() -> None:
    for options in (
        stream_options({**BASE, **STORE}),
        batch_options({**BASE, **STORE}),
        sink_options({**STORE, **BASE}),
    ):
        assert options.storage.config("s3://bucket/a") == {
            "aws_endpoint_url": "http://localhost:1",
            "aws_secret_access_key": SECRET,
        }
        assert SECRET not in repr(options)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "aws.secret.acces.key",
            "Unknown store config name: aws.secret.acces.key (did you mean aws.secret.access.key?)",
        ),
        ("aws.allow.http", "Invalid value hush-hush for configuration aws.allow.http"),
    ],
)
def test_a_setting_of_stores_that_is_wrong_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidConfigError, match=re.escape(f"stratalog.storage.*: {text}")):
        batch_options({**BASE, f"stratalog.storage.{name}": SECRET})
