"""What strata typed-table prints, and the command lines that it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog import QueryProgress, TableErasure, TypedTableState
from stratalog.clients.typed_tables.config import WriteMode
from stratalog.jobs import typed_table
from stratalog.jobs.command.terminal import UsageError

PLACE = ["--root", "data/cluster/metadata", "--topic", "orders", "--table", "lake/orders"]


def state(progress: QueryProgress, dead_letters: dict[str, int]) -> TypedTableState:
    return TypedTableState(
        "lake/orders", "orders", WriteMode.APPEND, progress, 7, lambda: 90, {1: 4, 0: 0}, dead_letters
    )


def test_a_state_has_a_line_for_each_partition_and_each_error() -> None:
    progress = QueryProgress("q", planned_batch=4, done_batch=3, positions={0: 50, 1: 46})
    assert typed_table.state_lines(state(progress, {"no json": 2, "no value": 5})) == [
        "Table: lake/orders\tTopic: orders\tMode: append\tVersion: 7\tRows: 90\tDead letters: 7",
        "Query: q\tbatch 3 is done, batch 4 is not",
        "partition\tposition\tlag",
        "0\t50\t0",
        "1\t46\t4",
        "dead letters\terror",
        "5\tno value",
        "2\tno json",
    ]
    assert typed_table.state_lines(state(QueryProgress(), {}))[1] == "Query: -\tthe query never ran"


def test_an_erasure_is_gone_when_both_tables_say_so() -> None:
    done, waiting = TableErasure("t", is_applied=True), TableErasure("d", is_applied=True, files_waiting=2)
    unknown = TableErasure("t", is_applied=True, rows_left=None, lacking="value")
    assert typed_table.erasure_lines([done])[1:] == ["t\tyes\t0\t0\t0", "Gone from table and dead letters."]
    in_log = TableErasure("d", is_applied=True, log_files_waiting=1)
    for left in (waiting, in_log):
        assert typed_table.erasure_lines([done, left])[-1] == "Not gone yet."
    assert typed_table.erasure_lines([unknown])[1:] == [
        "t\tyes\tnot known: the table does not keep the value\t0\t0",
        "Not gone yet.",
    ]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (PLACE[:2], "topic"),
        ([*PLACE, "--describe", "--replay"], "can't be used with"),
        ([*PLACE, "--schema-folder", "--schema-registry", "http://r"], "can't be used with"),
        ([*PLACE, "--registry-property", "a=b"], "schema-registry"),
    ],
)
def test_a_command_line_at_odds_is_refused(arguments: list[str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        typed_table.main.checked(arguments)


def test_settings_of_flags_count_before_those_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "table.properties"
    file.write_text("value.format=avro\non.error=skip\n")
    given = typed_table.main.checked([*PLACE, "--config-file", str(file), "--config", "value.format=json"])
    assert typed_table.settings(given) == {"value.format": "json", "on.error": "skip"}


def test_the_topic_of_a_schema_folder_may_be_left_out() -> None:
    assert typed_table.main.checked([*PLACE, "--schema-folder"]).schema_folder == "_schemas"
