"""Every option of both formats, as docs/spark-options.json: tried, refused or ignored. Pure.

`make differential-spark` shows that it is true of Kafka's connector and of ours. Kafka's names are those of its page
and of KafkaSourceProvider (spark-sql-kafka-0-10 of Spark 4.2).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from stratalog.clients.spark.option_names import OF_SINK, OF_SOURCE, STORAGE, Comes
from tests.lab.differential.spark.cases import CASES

KAFKAS = (
    *("kafka.bootstrap.servers", "subscribe", "subscribePattern", "assign"),
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "failOnDataLoss", "includeHeaders"),
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition"),
    *("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
    *("kafka.group.id", "groupIdPrefix", "kafka.isolation.level", "kafka.client.rack", "topic"),
    *("kafka.acks", "kafka.delivery.timeout.ms", "kafka.max.block.ms", "kafka.batch.size", "kafka.buffer.memory"),
    *("kafka.compression.type", "checkpointLocation", "queryName"),
)
"""The connector's options; besides these, any other `kafka.*` goes to Kafka's consumer or producer."""
REFUSED_THERE = (
    *("kafka.auto.offset.reset", "kafka.key.deserializer", "kafka.value.deserializer", "kafka.enable.auto.commit"),
    *("kafka.interceptor.classes", "kafka.key.serializer", "kafka.value.serializer"),
)
REFUSALS, HERE_ALONE = "refusals", "here alone"
DIFFERS: Mapping[str, str] = {
    "kafka.bootstrap.servers": "stratalog.root stands in its place",
    "kafka.acks": "all and 1 alike; 0 is refused here",
    "kafka.group.id": "in a stream here the query is in the group; there it only names the consumers",
    "kafka.compression.type": "codec of the topic's files here",
    "maxRecordsPerPartition": "splits batch reads here, too",
}
IN_STREAMS = dict.fromkeys(("kafka.group.id", "group.id"), "tried in a stream; ignored in a batch, with a warning")
TRIED_BY_TESTS: Mapping[str, str] = {
    "stratalog.root": "every case",
    "columns": "tests/spark/test_spark_source.py",
    "maxBytesPerTrigger": "tests/spark/test_spark_source.py",
    "isolation.level": "tests/clients/spark/test_options.py",
    "client.rack": "tests/clients/spark/test_options.py",
    "stratalog.timestamp.column": "tests/spark/test_spark_sink.py",
    "txnAppId": "tests/spark/test_spark_sink.py",
    "txnVersion": "tests/spark/test_spark_sink.py",
    "group.id": "tests/spark/test_spark_groups.py",
}
"""Where the options that only our format has are tried."""
STORAGE_TESTS = "tests/spark/test_storage_options.py"
OWN_GROUPS: Mapping[str, str] = {
    "stratalog.group.mode, stratalog.auto.offset.reset, stratalog.listener, stratalog.transport, "
    "configs of members and of connections": "tests/spark/test_spark_groups.py",
    "kafka.transactional.id, transactional.id, kafka.transaction.timeout.ms": (
        "tests/lab/real/test_transactional_query.py"
    ),
}
"""Options of queries in groups and of sinks in transactions, and where they are tried."""


def rows() -> list[tuple[str, str, str, str]]:
    """Each option: its name, what Kafka's connector makes of it, what ours does, and the case that compares them."""
    cases = {option: case.name for case in CASES for option in case.options}
    ours = _ours()
    found: list[tuple[str, str, str, str]] = []
    for name in (*KAFKAS, *REFUSED_THERE):
        here = ours.pop(name)
        here = IN_STREAMS.get(name, here)
        there = "refused" if name in REFUSED_THERE else "tried"
        case = cases.get(name) or (REFUSALS if name in REFUSED_THERE else "every case")
        note = f"; {DIFFERS[name]}" if name in DIFFERS else ""
        found.append((name, there, here, f"{case}{note}"))
    storage = [name for name in ours if name.startswith(STORAGE)]
    for name in storage:
        del ours[name]
    of_both = {name: IN_STREAMS.get(name, here) for name, here in ours.items()}
    found += [(name, "ignored", here, HERE_ALONE) for name, here in of_both.items()]
    found.append((f"{STORAGE}*", "ignored", "tried", HERE_ALONE))
    found += [(names, "passed to Kafka's clients, or ignored", "tried", HERE_ALONE) for names in OWN_GROUPS]
    passed_on = "consumer configs, producer configs"
    return [*found, ("any other kafka.*", "passed to Kafka's clients", "ignored, with a warning", passed_on)]


def as_json() -> str:
    """The rows as JSON, one a line."""
    keys = ("option", "kafka", "stratalog", "compared")
    lines = [json.dumps(dict(zip(keys, row, strict=True)), ensure_ascii=False) for row in rows()]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _ours() -> dict[str, str]:
    """What comes of each of our options, the source's first."""
    words = {Comes.TAKEN: "tried", Comes.REFUSED: "refused", Comes.IGNORED: "ignored, with a warning"}
    found: dict[str, str] = {}
    for comes, word in words.items():
        for side in (OF_SOURCE, OF_SINK):
            found |= {name: word for name in sorted(side.spelled(comes)) if name not in found}
    return found
