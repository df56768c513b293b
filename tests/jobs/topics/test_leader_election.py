"""The leader-election tool: which flags go together, the file it reads and the lines it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stratalog.jobs.command.terminal import UsageError
from stratalog.jobs.topics.leader_election import (
    answer_lines,
    asked_partitions,
    election_type_of,
    main,
    parse_partitions,
)
from stratalog.replication.controller.election.preferred_leaders import ElectionType
from stratalog.storage.errors import ElectionNotNeededError, PreferredLeaderNotAvailableError
from stratalog.storage.records import TopicPartition

FILE = '{"partitions": [{"topic": "foo", "partition": 1}, {"topic": "bar", "partition": 0}]}'
FOO, BAR = TopicPartition("foo", 1), TopicPartition("bar", 0)


@pytest.mark.parametrize(
    ("arguments", "election_type"),
    [
        ("--election-type preferred --all-topic-partitions", ElectionType.PREFERRED),
        ("--election-type UNCLEAN --topic foo --partition 1", ElectionType.UNCLEAN),
        ("--election-type preferred --path-to-json-file x.json", ElectionType.PREFERRED),
    ],
)
def test_flags_that_go_together(arguments: str, election_type: ElectionType) -> None:
    assert election_type_of(main.checked(arguments.split())) is election_type


ONE_OF = "One and only one of the following options is required: topic, all-topic-partitions, path-to-json-file"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--all-topic-partitions", "Missing required option(s): election-type"),
        ("--election-type preferred", ONE_OF),
        ("--election-type preferred --all-topic-partitions --topic foo --partition 1", ONE_OF),
        ("--election-type preferred --topic foo --path-to-json-file x.json", ONE_OF),
        ("--election-type preferred --topic foo", "Missing required option(s): partition"),
        (
            "--election-type preferred --all-topic-partitions --partition 1",
            "Option partition is only allowed if topic is used",
        ),
        ("--election-type fair --all-topic-partitions", "fair is not an election type: preferred or unclean"),
    ],
)
def test_flags_that_do_not_go_together(arguments: str, message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        election_type_of(main.checked(arguments.split()))
    assert str(refusal.value) == message


def test_the_flags_name_all_partitions_or_one_or_those_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "election.json"
    file.write_text(FILE)
    flags = ["--all-topic-partitions", "--topic foo --partition 1", f"--path-to-json-file {file}"]
    assert [asked_partitions(main.parse(given.split())) for given in flags] == [None, [FOO], [FOO, BAR]]
    with pytest.raises(UsageError, match="cannot be read"):
        asked_partitions(main.parse(["--path-to-json-file", str(tmp_path / "none.json")]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Replica election data is empty"),
        ("{}", 'Replica election data is missing "partitions" field'),
        ("[]", 'Replica election data is missing "partitions" field'),
        ('{"partitions": [{"topic": "t"}]}', "Each partition has a topic and a partition; found 'partition'"),
        (
            json.dumps({"partitions": [{"topic": name, "partition": 0} for name in "tut"]}),
            "Replica election data contains duplicate partitions: t-0",
        ),
    ],
)
def test_a_file_that_is_none_is_refused_in_kafkas_words(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse_partitions(text)
    assert str(refusal.value) == message


def test_the_lines_are_kafkas() -> None:
    answers = {
        FOO: None,
        BAR: None,
        TopicPartition("t", 0): ElectionNotNeededError("it leads"),
        TopicPartition("t", 1): PreferredLeaderNotAvailableError("Failed to elect leader for partition t-1"),
    }
    assert answer_lines(ElectionType.PREFERRED, answers) == [
        "Successfully completed leader election (PREFERRED) for partitions foo-1, bar-0",
        "Valid replica already elected for partitions t-0",
        (
            "Error completing leader election (PREFERRED) for partition: t-1: PREFERRED_LEADER_NOT_AVAILABLE: "
            "Failed to elect leader for partition t-1"
        ),
    ]
    assert answer_lines(ElectionType.UNCLEAN, {}) == []


def test_what_is_missing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--election-type", "preferred", "--all-topic-partitions"]) == 1
    assert "Which cluster? Give --root" in capsys.readouterr().err
    with pytest.raises(UsageError, match="admin is not a recognized option"):
        main.call(["--admin", "x"])


def test_the_help_shows_the_files_format() -> None:
    assert '{"partitions": [{"topic": "events", "partition": 0}, {"topic": "events", "partition": 1}]}' in main.help()
