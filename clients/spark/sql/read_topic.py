"""A batch read between fixed offsets, and their end as the start of a stream.

I/O: Spark, the metadata log and the leaders' progress; with `read_committed` also the leaders' tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from stratalog.clients.spark.offsets import OffsetFetcher
from stratalog.clients.spark.option_names import ROOT
from stratalog.clients.spark.options import batch_options
from stratalog.clients.spark.registration import session_options
from stratalog.clients.spark.source.plan import assignment_to_json, offsets_to_json
from stratalog.clients.spark.worker import view_of
from stratalog.server.bootstrap import Cluster, root_of


class TopicRead(NamedTuple):
    """A frame, and where it ends.

    frame             the source's columns; every evaluation has the same records
    starting_offsets  where it ends, as the option `startingOffsets` of a stream
    """

    frame: DataFrame
    starting_offsets: str


def read_topic(
    spark: SparkSession, cluster: Cluster, topic: str, options: Mapping[str, object] | None = None
) -> TopicRead:
    """The committed records of a topic as of now. A stream that starts with `starting_offsets` has all later ones.

    cluster  a running `Cluster`, or its metadata root
    topic    a topic, or several with commas, as the option `subscribe`
    options  of the source's batch reads: `isolation.level`, `includeHeaders`, `startingOffsets`, … A stream that goes
             on needs the same isolation level. They take precedence over `spark.stratalog.storage.*` of the session.

    Raises UnknownTopicOrPartitionError, LeaderNotAvailableError, InvalidConfigError for a wrong option. A query on the
    frame fails with KAFKA_DATA_LOSS once retention has removed some of its records (`failOnDataLoss`).
    """
    given = {**session_options(spark), "subscribe": topic, **(options or {}), ROOT: root_of(cluster)}
    given_as_text = {name: _text(value) for name, value in given.items()}
    parsed = batch_options(given_as_text)
    view = view_of(parsed.root, parsed.storage, parsed.isolation_level)
    view.refresh()
    fetcher = OffsetFetcher(view, parsed)
    start = fetcher.limits(parsed.starting, starting=True)
    end = {tp: offset for tp, offset in fetcher.limits(parsed.ending, starting=False).items() if tp in start}
    ends = json.dumps(offsets_to_json(end))
    fixed = {
        "assign": json.dumps(assignment_to_json(end)),  # partitions that the topic gets later are not of this read
        "startingOffsets": json.dumps(offsets_to_json({tp: start[tp] for tp in end})),
        "endingOffsets": ends,
    }
    kept = {name: value for name, value in given_as_text.items() if not _is_replaced(name.lower())}
    return TopicRead(spark.read.format("stratalog").options(**kept, **fixed).load(), ends)


def _is_replaced(name: str) -> bool:
    return name.startswith(("starting", "ending")) or name in ("subscribe", "subscribepattern", "assign")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
