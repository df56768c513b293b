"""What the console's questions answer, and that they show nothing that the asker may not see."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

import pytest

from stratalog.clients.console.catalogue import CHANGES, QUESTIONS
from stratalog.clients.console.question import plain
from stratalog.clients.console.questions.brokers import BrokerDetail
from stratalog.clients.console.questions.groups import GroupDetail, GroupList
from stratalog.clients.console.questions.overview import Overview
from stratalog.clients.console.questions.records import RecordDetail, Records
from stratalog.clients.console.questions.topics import Topic, TopicList
from stratalog.clients.console.questions.transactions import TransactionList
from stratalog.jobs.command.opened import OpenedCluster
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from tests.clients.console.asked_cluster import (
    GUESSES,
    HIDDEN,
    HOSTILE,
    SECRET_ID,
    SECRET_TOPIC,
    attempts,
    bob,
    everybody,
    filled_cluster,
    nobody,
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[OpenedCluster]:
    with filled_cluster() as opened:
        yield opened


@pytest.mark.parametrize("name", sorted(QUESTIONS))
@pytest.mark.parametrize("who", [bob, nobody])
def test_no_answer_shows_what_is_hidden(cluster: OpenedCluster, name: str, who: object) -> None:
    asker = who(cluster)  # type: ignore[operator]
    question = QUESTIONS[name]
    for given in attempts(question):
        try:
            answer = json.dumps(plain(question.ask(asker, given)))
        except StratalogError as reason:
            answer = str(reason)
        for guess in sorted(set(given.values()), key=len, reverse=True):
            answer = answer.replace(guess, "")
        for value in given.values():
            answer = answer.replace(json.dumps(value)[1:-1], "")
        if name == "sql" and SECRET_TOPIC in given["sql"]:  # the reason names the table that is not found
            answer = answer.replace(SECRET_TOPIC, "")
        assert HIDDEN not in answer, (given, answer)


@pytest.mark.parametrize("name", sorted(QUESTIONS))
def test_a_hidden_resource_is_answered_like_an_absent_one(cluster: OpenedCluster, name: str) -> None:
    """So that a guessed name is not confirmed."""
    question = QUESTIONS[name]
    for parameter in {"topic", "group", "transactional_id"} & set(question.parameters):
        told = []
        for guess in (GUESSES[parameter][0], "absent"):
            needed = {**next(attempts(question)), parameter: guess}
            try:
                answer = json.dumps(plain(question.ask(nobody(cluster), needed)))
            except StratalogError as reason:
                answer = f"{reason.name} {reason}"
            told.append(answer.replace(guess, "X"))
        assert told[0] == told[1]


def test_a_user_without_rights_sees_no_topic(cluster: OpenedCluster) -> None:
    found = cast("TopicList", QUESTIONS["topics"].ask(nobody(cluster), {"internal": "on"}))
    assert (found.topics, found.count) == ([], 0)
    with pytest.raises(errors.TopicAuthorizationFailedError):
        QUESTIONS["records"].ask(nobody(cluster), {"topic": "orders"})


def test_the_overview_counts(cluster: OpenedCluster) -> None:
    found = cast("Overview", QUESTIONS["overview"].ask(everybody(cluster), {}))
    assert (found.offline, found.under_replicated, len(found.brokers)) == (0, 0, 1)
    assert found.topics >= 3
    seen = cast("Overview", QUESTIONS["overview"].ask(bob(cluster), {}))
    assert (seen.topics, seen.partitions) == (1, 2)


def test_topics_are_listed_in_parts(cluster: OpenedCluster) -> None:
    def names(**given: str) -> list[str]:
        return [each.name for each in cast("TopicList", QUESTIONS["topics"].ask(everybody(cluster), given)).topics]

    assert names() == sorted([SECRET_TOPIC, "_schemas", "decoded", "hostile", "orders"])
    assert names(order="records")[0] == "orders"
    assert names(contains="ORD") == ["orders"]
    assert names(first="3", limit="1") == ["hostile"]
    assert "__consumer_offsets" in names(internal="on")


def test_a_topic_has_partitions_and_configs(cluster: OpenedCluster) -> None:
    found = cast("Topic", QUESTIONS["topic"].ask(everybody(cluster), {"topic": "orders"}))
    assert [(each.partition, each.records, each.state) for each in found.partitions] == [
        (0, 15, "in sync"),
        (1, 15, "in sync"),
    ]
    assert found.size_bytes > 0
    assert "retention.ms" in {each.name for each in found.configs}


def offsets(cluster: OpenedCluster, **given: str) -> list[tuple[int, int]]:
    found = cast("Records", QUESTIONS["records"].ask(everybody(cluster), {"topic": "orders", **given}))
    return [(each.partition, each.offset) for each in found.records]


def test_records_by_place_time_and_text(cluster: OpenedCluster) -> None:
    assert offsets(cluster, limit="3") == [(1, 14), (0, 14), (1, 13)]
    assert offsets(cluster, where="oldest", limit="3") == [(0, 0), (1, 0), (0, 1)]
    assert offsets(cluster, where="offset", at="13", partition="1") == [(1, 13), (1, 14)]
    assert offsets(cluster, where="time", at="1028") == [(0, 14), (1, 14)]
    assert offsets(cluster, where="time", at="1970-01-01T00:00:01.028Z") == [(0, 14), (1, 14)]
    assert offsets(cluster, contains="customer-7", part="key") == [(1, 3)]
    assert offsets(cluster, contains="ORDER 29") == [(1, 14)]
    assert offsets(cluster, contains="customer-7", part="value") == []


def test_reading_goes_on_where_it_stopped(cluster: OpenedCluster) -> None:
    at, found = 0, list[tuple[int, int]]()
    while at < 15:
        given = {"topic": "orders", "partition": "0", "where": "offset", "at": str(at), "limit": "4"}
        part = cast("Records", QUESTIONS["records"].ask(everybody(cluster), given))
        found += [(each.partition, each.offset) for each in part.records]
        at = part.places[0].next_offset
    assert found == [(0, n) for n in range(15)]


def test_hostile_values_are_cut_and_whole_in_one_record(cluster: OpenedCluster) -> None:
    found = cast("Records", QUESTIONS["records"].ask(everybody(cluster), {"topic": "hostile"}))
    assert len(json.dumps(plain(found))) < 60_000
    last = {"topic": "hostile", "partition": "0", "offset": str(len(HOSTILE) - 1)}
    one = cast("RecordDetail", QUESTIONS["record"].ask(everybody(cluster), last))
    assert (one.record.value.size_bytes, one.record.value.is_cut) == (900_000, True)


def test_a_group_is_behind_in_records_and_seconds(cluster: OpenedCluster) -> None:
    found = cast("GroupDetail", QUESTIONS["group"].ask(everybody(cluster), {"group": "billing"}))
    row = next(each for each in found.partitions if each.topic == "orders")
    assert (row.lag, row.committed) == (10, 5)
    assert row.seconds == pytest.approx((everybody(cluster).now_ms - 1_010) / 1_000)
    seen = cast("GroupDetail", QUESTIONS["group"].ask(bob(cluster), {"group": "billing"}))
    assert ([each.topic for each in seen.partitions], seen.hidden) == (["orders"], 1)


def test_a_list_of_groups_has_seconds(cluster: OpenedCluster) -> None:
    found = cast("GroupList", QUESTIONS["groups"].ask(bob(cluster), {"seconds": "on"}))
    assert [each.seconds for each in found.groups] == [pytest.approx((bob(cluster).now_ms - 1_010) / 1_000)]


def test_groups_with_the_largest_lag_come_first(cluster: OpenedCluster) -> None:
    found = cast("GroupList", QUESTIONS["groups"].ask(everybody(cluster), {}))
    assert [each.lag for each in found.groups] == sorted((each.lag for each in found.groups), reverse=True)
    assert [each.group_id for each in cast("GroupList", QUESTIONS["groups"].ask(bob(cluster), {})).groups] == [
        "billing"
    ]


def test_an_open_transaction_says_what_it_holds_back(cluster: OpenedCluster) -> None:
    found = cast("TransactionList", QUESTIONS["transactions"].ask(everybody(cluster), {}))
    (one,) = found.transactions
    assert one.transactional_id == SECRET_ID
    assert [(each.topic, each.first_offset, each.records) for each in one.held_back] == [(SECRET_TOPIC, 1, 1)]


def test_a_restart_endangers_what_has_one_replica(cluster: OpenedCluster) -> None:
    found = cast("BrokerDetail", QUESTIONS["broker"].ask(everybody(cluster), {"broker": "1"}))
    assert {(each.topic, each.effect) for each in found.endangered} >= {("orders", "offline")}


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_no_change_is_made_or_previewed_without_the_right(cluster: OpenedCluster, name: str) -> None:
    given = {
        "topic": SECRET_TOPIC,
        "group": "billing" if name == "reset_group" else "absent",
        "user": "eve",
        "password": "long enough",
        "principal": "User:eve",
        "resource_name": "orders",
        "name": "retention.ms",
        "value": "1",
        "partitions": "9",
        "table": "/lake/hidden-payroll",
        "brokers": "1",
        "bound": "1024",
        "client_id": "app",
    }
    change = CHANGES[name]
    own = {key: value for key, value in given.items() if key in change.parameters}
    for act in (change.previewed, change.performed):
        with pytest.raises(StratalogError) as refused:
            act(nobody(cluster), own)
        is_hidden = "no typed table is known" in str(refused.value)  # as one that is not there
        assert is_hidden or refused.value.name.endswith("AUTHORIZATION_FAILED"), refused.value
