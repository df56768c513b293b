"""A query's progress as numbers: which sources are ours, and how far each is behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from stratalog.clients.spark.progress.offsets_behind import (
    OffsetsBehindLatest,
    QueryLag,
    lag_of,
    metrics_of,
    progress_of,
)
from stratalog.storage.records import TopicPartition

END = {"t": {"0": 5, "1": 9}, "t@start": {"0": 0, "1": 0}, "@ids": {"t": "id-of-t"}}
T = (TopicPartition("t", 0), TopicPartition("t", 1))
LATEST = {"t": {"0": 9, "1": 9, "2": 3}}


def progress(*sources: dict[str, Any], name: str | None = "q") -> dict[str, Any]:
    body = {"id": "i", "runId": "r", "name": name, "timestamp": "2026-11-25T12:00:00.000Z", "batchId": 7}
    return {**body, "sources": list(sources)}


def source(end: object, latest: object) -> dict[str, Any]:
    return {"endOffset": end, "latestOffset": latest, "numInputRows": 4}


@pytest.mark.parametrize("as_text", [False, True])
def test_a_source_is_behind_by_what_it_has_not_read(as_text: bool) -> None:
    given = source(json.dumps(END), json.dumps(LATEST)) if as_text else source(END, LATEST)
    (found,) = progress_of(progress(given))
    assert found.behind == OffsetsBehindLatest(0, 4, 7 / 3)
    assert (found.topics, found.row_count, found.batch_id, found.key) == (("t",), 4, 7, ("r", 0))


def test_other_sources_and_sources_without_offsets_are_left_out() -> None:
    of_kafka = source({"t": {"0": 5}}, {"t": {"0": 9}})
    of_rate = source(17, 18)
    found = progress_of(progress(of_kafka, of_rate, source(None, None), source("None", "None"), source(END, None)))
    assert [(each.source, each.behind) for each in found] == [(4, None)]


def test_a_query_that_shares_partitions_counts_its_own() -> None:
    end = {"t": {"1": 4}, "t@start": {"1": 0}, "@member": {"id": "m", "generation": 3}}
    (found,) = progress_of(progress(source(end, {"t": {"1": 9}})))
    assert (found.topics, found.behind) == (("t",), OffsetsBehindLatest(5, 5, 5.0))


class _SparksProgress(dict[str, Any]):
    """As `StreamingQueryProgress`: a mapping whose values are objects, with all of it as text beside them."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__(sources=[object()])
        self.json = json.dumps(body)


@pytest.mark.parametrize("given", [dict, _SparksProgress])
def test_the_lag_of_a_query_by_partition(given: Callable[[dict[str, Any]], Any]) -> None:
    body = progress(source(END, LATEST), source(END, {"t": {"0": 6}}), source({"t": {"0": 5}}, {"t": {"0": 9}}))
    lag = lag_of(given(body))
    assert lag == QueryLag("q", {TopicPartition("t", 0): 4 + 1, TopicPartition("t", 1): 0, TopicPartition("t", 2): 3})
    assert lag.total == 8
    assert lag_of(given(progress(source(END, END), name=None))) == QueryLag("i", dict.fromkeys(T, 0))


def test_without_a_batch_or_a_source_of_ours_there_is_no_lag() -> None:
    assert lag_of(None) is None
    assert lag_of(progress(source({"t": {"0": 5}}, {"t": {"0": 9}}), source(END, None))) is None


def test_gauges_have_the_connectors_names() -> None:
    named = progress_of(progress(source(END, LATEST), name='of "mine"'))
    unnamed = progress_of(progress(source(END, END), name=None))
    shown = [(metric.name.removeprefix("stratalog_spark_source_"), dict(labels).get("query"), value)
             for metric in metrics_of([*named, *unnamed], 12) for labels, value in metric.values.items()]  # fmt: skip
    assert shown == [
        ("minOffsetsBehindLatest", 'of "mine"', 0),
        ("minOffsetsBehindLatest", "i", 0),
        ("maxOffsetsBehindLatest", 'of "mine"', 4),
        ("maxOffsetsBehindLatest", "i", 0),
        ("avgOffsetsBehindLatest", 'of "mine"', 7 / 3),
        ("avgOffsetsBehindLatest", "i", 0.0),
        ("replicaLagMax", None, 12),
    ]
    assert "replicaLagMax" not in str(metrics_of(named, None))
