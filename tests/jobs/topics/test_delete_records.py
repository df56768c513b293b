"""The delete-records tool: the offsets file it reads and the lines it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stratalog.jobs.command.terminal import UsageError
from stratalog.jobs.topics.delete_records import answer_lines, main, parse_offsets
from stratalog.replication.requests.delete_records import DeletedRecords
from stratalog.storage.errors import OffsetOutOfRangeError
from stratalog.storage.records import TopicPartition

FILE = '{"partitions": [{"topic": "foo", "partition": 1, "offset": 50}, {"topic": "bar", "partition": 0, "offset": -1}]'


@pytest.mark.parametrize("text", [FILE + ', "version": 1}', FILE + "}"])
def test_an_offsets_file_names_partitions_and_where_their_logs_are_to_start(text: str) -> None:
    assert parse_offsets(text) == {TopicPartition("foo", 1): 50, TopicPartition("bar", 0): -1}


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("{", "The input string is not a valid JSON"),
        ("[]", "Missing partitions field"),
        ('{"version": 1}', "Missing partitions field"),
        ('{"partitions": [], "version": 2}', "Not supported version field value 2"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "found 'offset'"),
        ('{"partitions": {"topic": "t"}}', "Each partition has a topic, a partition and an offset"),
        (
            json.dumps({"partitions": [{"topic": name, "partition": 0, "offset": 1} for name in "tut"]}),
            "Offset json file contains duplicate topic partitions: t-0",
        ),
    ],
)
def test_a_file_that_is_none_is_refused_in_kafkas_words(text: str, refusal: str) -> None:
    with pytest.raises(UsageError, match=refusal):
        parse_offsets(text)


def test_a_line_is_printed_for_each_partition() -> None:
    error = OffsetOutOfRangeError("cannot move the log start offset to 9 > high watermark 8")
    answers = {TopicPartition("foo", 1): DeletedRecords(50), TopicPartition("bar", 0): DeletedRecords(error=error)}
    assert answer_lines(answers) == [
        "partition: foo-1\tlow_watermark: 50",
        "partition: bar-0\terror: cannot move the log start offset to 9 > high watermark 8",
    ]


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        ([], 'Missing required argument "[offset-json-file]"'),
        (["--offset-json-file", "{file}"], "Which cluster? Give --root"),
        (["--offset-json-file", "{file}", "--offset", "1"], "offset is not a recognized option"),
        (["--offset-json-file", "{file}/none", "--root", "x"], "/none cannot be read: Not a directory"),
    ],
)
def test_what_is_missing_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], refusal: str
) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(FILE + "}")
    assert main([argument.format(file=file) for argument in arguments]) == 1
    assert refusal in capsys.readouterr().err


def test_the_help_shows_the_files_format() -> None:
    assert '{"partitions": [{"topic": "events", "partition": 1, "offset": 1000}], "version": 1}' in main.help()
