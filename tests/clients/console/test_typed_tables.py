"""Typed tables in the console: found by their notes, with lag, dead letters and what they hold of an erasure."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from starlette.testclient import TestClient

from stratalog.clients.console.asker import Asker
from stratalog.clients.console.beside import Beside
from stratalog.clients.console.catalogue import CHANGES, QUESTIONS
from stratalog.clients.console.stored.erasure import ErasureProof
from stratalog.clients.console.typed.questions import DeadLetters, TypedDetail, TypedTables
from stratalog.clients.typed_tables.layout import MODE, TOPIC, TOPIC_ID
from stratalog.clients.typed_tables.notes import TypedTableNote, leave_note, notes_of, remove_note
from stratalog.jobs.command.opened import OpenedCluster
from stratalog.replication.metadata.acls import Authorizer, Operation, Principal, ResourceType
from stratalog.storage.errors import InvalidRequestError, TopicAuthorizationFailedError
from tests.clients.console.asked_cluster import NOW_MS, bob, console_of, everybody, filled_cluster, rule
from tests.waiting import wait_until

AT = dt.datetime(2026, 11, 30, 14, tzinfo=dt.UTC)
HEADER = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NAMES = {"topic": "orders", "partition": 1, "query_id": "q-1", "batch_id": 0, "timestamp": AT, "failed_at": AT}
ERRORS = ("Schema 9 not found", "Schema 9 not found", "<b>it's no number</b>")


@pytest.fixture(scope="module")
def cluster() -> Iterator[OpenedCluster]:
    with filled_cluster() as opened:
        yield opened


def rows(columns: Mapping[str, pa.DataType], found: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(found, pa.schema(list(columns.items())))


def write_delta(place: str, found: pa.Table, properties: Mapping[str, str]) -> None:
    """A table with properties that deltalake does not write itself, as it knows only Delta's."""
    write_deltalake(place, found)
    commit = Path(place) / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for each in lines:
        if "metaData" in each:
            each["metaData"]["configuration"] |= properties
    commit.write_text("".join(f"{json.dumps(each)}\n" for each in lines))


def make_table(place: Path, cluster: OpenedCluster, topic: str, keys: str = "customer") -> TypedTableNote:
    """The folders that a query of a typed table leaves: 10 records of partition 0, of which 3 are dead letters."""
    topic_id = cluster.view.image.topic_ids[topic]
    properties = {TOPIC: topic, TOPIC_ID: topic_id, MODE: "append", "delta.enableDeletionVectors": "false"}
    columns = {"_partition": pa.int32(), "_offset": pa.int64(), "_timestamp": pa.timestamp("us", "UTC"),
               "_key": pa.binary(), "id": pa.int64()}  # fmt: skip
    own = [{"_partition": 0, "_offset": n, "_timestamp": AT, "_key": f"{keys}-{2 * n}".encode(), "id": n}
           for n in range(7)]  # fmt: skip
    write_delta(str(place), rows(columns, own), properties)
    letters = {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": HEADER,
        "error": pa.string(),
        "query_id": pa.string(),
        "batch_id": pa.int64(),
        "failed_at": pa.timestamp("us", "UTC"),
    }
    dead = [
        {
            **NAMES,
            "topic": topic,
            "partition": 0,
            "offset": 7 + n,
            "key": f"{keys}-14".encode(),
            "value": b"order 14",
            "headers": [],
            "error": error,
        }
        for n, error in enumerate(ERRORS)
    ]
    write_delta(f"{place}__dlq", rows(letters, dead), properties)
    checkpoint = place / "_stratalog_checkpoint"
    for name, text in {
        "metadata": '{"id":"q-1"}',
        "offsets/0": f"v1\n{{}}\n{json.dumps({topic: {'0': 10}, '@ids': {}})}",
        "commits/0": "v1\n{}",
        "offsets/1": f"v1\n{{}}\n{json.dumps({topic: {'0': 15}, '@ids': {}})}",
    }.items():
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text(text)
    return TypedTableNote(
        str(place), str(place), f"{place}__dlq", str(checkpoint), topic, topic_id, "append", {"value.format": "json"}
    )


@pytest.fixture(scope="module")
def place(cluster: OpenedCluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with a note."""
    note = make_table(tmp_path_factory.mktemp("lake") / "orders", cluster, "orders")
    objects = cluster.view.stores.objects(cluster.view.root)
    leave_note(objects, note)
    assert notes_of(objects) == [note]
    return note.location


def ask(asker: Asker, name: str, **given: str) -> Any:
    return QUESTIONS[name].ask(asker, given)


def test_a_table_is_known_by_its_note(cluster: OpenedCluster, place: str) -> None:
    [found] = cast("TypedTables", ask(everybody(cluster), "typed_tables")).tables
    assert (found.table, found.topic, found.mode, found.rows, found.dead_letters) == (place, "orders", "append", 7, 3)
    assert (found.lag, found.version, found.problem, found.is_stale) == (20, 0, "", False)
    assert found.last_commit_ms > 0


def test_a_table_is_shown_with_positions_columns_and_reasons(cluster: OpenedCluster, place: str) -> None:
    found = cast("TypedDetail", ask(everybody(cluster), "typed_table", table=place))
    assert [(each.partition, each.position, each.lag) for each in found.positions] == [(0, 10, 5), (1, 0, 15)]
    assert (found.query_id, found.done_batch, found.is_unfinished) == ("q-1", 0, True)
    assert ("id", "long") in [(each.name, each.type) for each in found.columns]
    assert [(each.reason, each.count) for each in found.reasons] == [(ERRORS[0], 2), (ERRORS[2], 1)]


def test_dead_letters_are_shown_record_by_record(cluster: OpenedCluster, place: str) -> None:
    found = cast("DeadLetters", ask(everybody(cluster), "dead_letters", table=place))
    assert [(each.partition, each.offset, each.reason) for each in found.letters] == [
        (0, 7 + n, error) for n, error in enumerate(ERRORS)
    ]
    assert found.letters[0].value.text == "order 14"
    assert found.letters[0].failed_ms == AT.timestamp() * 1_000
    quoted = cast("DeadLetters", ask(everybody(cluster), "dead_letters", table=place, reason="it's"))
    assert (quoted.count, [each.offset for each in quoted.letters]) == (1, [9])
    second = cast("DeadLetters", ask(everybody(cluster), "dead_letters", table=place, first="1", limit="1"))
    assert (second.count, [each.offset for each in second.letters]) == (3, [8])


def test_who_may_not_read_the_topic_sees_no_table_of_it(cluster: OpenedCluster, place: str, tmp_path: Path) -> None:
    assert len(cast("TypedTables", ask(bob(cluster), "typed_tables")).tables) == 1
    describes = (rule("User:carol", ResourceType.TOPIC, "orders", Operation.DESCRIBE),)
    carol = Asker(cluster, Principal("User:carol"), Authorizer(describes), NOW_MS)
    assert cast("TypedTables", ask(carol, "typed_tables")).tables == []
    told = []
    for table in (place, str(tmp_path)):
        with pytest.raises(InvalidRequestError) as refused:
            ask(carol, "typed_table", table=table)
        told.append(str(refused.value).replace(table, "X"))
    assert told[0] == told[1]
    for change in ("replay_dead_letters", "forget_typed_table"):
        with pytest.raises(TopicAuthorizationFailedError):
            CHANGES[change].previewed(bob(cluster), {"table": place})


def test_a_folder_that_is_not_known_is_not_read(cluster: OpenedCluster, tmp_path: Path) -> None:
    make_table(tmp_path / "other", cluster, "orders")
    with pytest.raises(InvalidRequestError, match="no typed table is known"):
        ask(everybody(cluster), "typed_table", table=str(tmp_path / "other"))
    named = Asker(cluster, Principal(), None, NOW_MS, Beside(typed_tables=(f"file://{tmp_path}/other/",)))
    found = cast("TypedDetail", ask(named, "typed_table", table=str(tmp_path / "other")))
    assert (found.row.topic, found.row.dead_letters, found.row.lag) == ("orders", 3, 20)


def test_an_erasure_is_proved_in_typed_tables_too(cluster: OpenedCluster, place: str) -> None:
    admin = cluster.admin
    erase_id = admin.delete_where("orders", {"key": {"in": ["customer-4", "customer-14"]}})
    wait_until(lambda: admin.describe_erasure("orders", erase_id).is_erased, "an erasure")

    def proof() -> ErasureProof:
        return cast("ErasureProof", ask(everybody(cluster), "erasure", topic="orders", erase_id=str(erase_id)))

    before = proof()
    assert [(each.table, each.is_applied, each.rows_left) for each in before.typed_tables] == [
        (place, False, 1), (f"{place}__dlq", False, 3),
    ]  # fmt: skip
    assert not before.is_gone
    DeltaTable(place).delete("_offset = 2")
    DeltaTable(f"{place}__dlq").delete('"offset" >= 7')
    DeltaTable(place).alter.set_table_properties(
        {"stratalog.erased.id": str(erase_id), "stratalog.erased.ms": str(1 << 42)}, raise_if_not_exists=False
    )
    after = proof()
    assert [(each.is_applied, each.rows_left) for each in after.typed_tables] == [(True, 0), (True, 0)]
    assert [each.is_gone for each in after.typed_tables] == [False, False], "files of older versions are there"
    assert all(each.files_waiting and each.log_files_waiting for each in after.typed_tables)


def test_a_replay_is_previewed_and_a_note_forgotten(cluster: OpenedCluster, tmp_path: Path) -> None:
    note = make_table(tmp_path / "more", cluster, "hostile")
    objects = cluster.view.stores.objects(cluster.view.root)
    leave_note(objects, note)
    preview = CHANGES["replay_dead_letters"].previewed(everybody(cluster), {"table": note.location})
    assert [(each.what, each.before) for each in preview.lines] == [
        ("rows of the table", "7"), (f"dead letters: {ERRORS[0]}", "2"), (f"dead letters: {ERRORS[2]}", "1"),
    ]  # fmt: skip
    CHANGES["forget_typed_table"].performed(everybody(cluster), {"table": note.location})
    assert note not in notes_of(objects)


def test_a_note_that_is_none_is_passed_over(cluster: OpenedCluster) -> None:
    objects = cluster.view.stores.objects(cluster.view.root)
    for data in (b"{", b"{}", json.dumps({"location": 1}).encode()):
        objects.put("typed-tables/broken.json", data)
        assert all(each.topic for each in notes_of(objects))
    objects.delete("typed-tables/broken.json")


def test_pages_show_tables_and_dead_letters_escaped(cluster: OpenedCluster, place: str, tmp_path: Path) -> None:
    note = make_table(tmp_path / "shown", cluster, "decoded")
    leave_note(cluster.view.stores.objects(cluster.view.root), note)
    browser = TestClient(console_of(cluster, allow_changes=True)[0].application(), follow_redirects=False)
    for address, texts in {
        "/typed_tables": [note.location, place],
        f"/typed_table?table={note.location}": ["Why records do not fit", "value.format", "Replay dead letters"],
        f"/dead_letters?table={note.location}": ["offset=7", "&lt;b&gt;it&#39;s no number"],
        f"/change/replay_dead_letters?table={note.location}": ["What would change"],
    }.items():
        answer = browser.get(address)
        assert answer.status_code == 200, answer.text
        assert "<b>it" not in answer.text
        for text in texts:
            assert text in answer.text, (address, text)


def sql(asker: Asker, statement: str) -> Any:
    return ask(asker, "sql", sql=statement).rows


@pytest.fixture
def sold(cluster: OpenedCluster, tmp_path: Path) -> Iterator[str]:
    """A table of the topic `orders` that another one's erasures do not touch."""
    note = make_table(tmp_path / "sold", cluster, "orders")
    objects = cluster.view.stores.objects(cluster.view.root)
    leave_note(objects, note)
    yield note.location
    remove_note(objects, note.location)


def test_a_statement_reads_a_typed_table_beside_its_topic(cluster: OpenedCluster, sold: str) -> None:
    both = (
        "SELECT t.id, CAST(o.key AS STRING) FROM {table} t JOIN orders o ON o.partition = t._partition "
        "AND o.offset = t._offset WHERE t._offset >= 5 ORDER BY t.id"
    )
    for table in ("typed.sold", f"delta.`{sold}`"):
        assert sql(everybody(cluster), both.format(table=table)) == ((5, "customer-10"), (6, "customer-12"))
    letters = "SELECT error, count(*) AS n FROM typed.sold__dlq GROUP BY error ORDER BY n DESC"
    assert sql(everybody(cluster), letters) == (("Schema 9 not found", 2), ("<b>it's no number</b>", 1))
    within = f"SELECT count(*) FROM orders WHERE offset = (SELECT max(_offset) FROM delta.`{sold}`)"
    assert sql(everybody(cluster), within) == ((2,),)
    assert sql(everybody(cluster), "SELECT count(*) FROM typed.sold") == ((7,),)
    assert sql(everybody(cluster), "SELECT count(*), max(_timestamp) FROM typed.sold") == (
        (7, "2026-11-30 14:00:00.000000Z"),
    )


def test_a_typed_table_is_listed_with_its_columns_and_hidden_from_who_may_not_read_its_topic(
    cluster: OpenedCluster, sold: str
) -> None:
    found = {each.name: each for each in ask(bob(cluster), "sql_tables").tables}
    assert found["typed.sold"].of == "typed table"
    assert [each.name for each in found["typed.sold"].columns][-1] == "id"
    blind = Asker(cluster, Principal("User:blind"), Authorizer(()), NOW_MS)
    assert not [each for each in ask(blind, "sql_tables").tables if each.of == "typed table"]
    for table in ("typed.sold", f"delta.`{sold}`", f"delta.`{sold}/_delta_log`", "delta.`/etc`"):
        with pytest.raises(InvalidRequestError, match="not found"):
            sql(blind, f"SELECT * FROM {table}")


@pytest.mark.parametrize("before", ["public.", "datafusion.public.", "datafusion."])
def test_a_table_by_another_name_is_refused_and_not_empty(cluster: OpenedCluster, sold: str, before: str) -> None:
    table = "typed.sold" if before == "datafusion." else "orders"
    with pytest.raises(InvalidRequestError, match=f"is written {table}"):
        sql(everybody(cluster), f"SELECT count(*) FROM {before}{table}")
    with pytest.raises(InvalidRequestError, match=f"is written {table}"):
        sql(everybody(cluster), f"SELECT 1 WHERE 1 = (SELECT count(*) FROM {before}{table})")
