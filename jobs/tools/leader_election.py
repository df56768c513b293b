"""`kafka-leader-election` for stratalog: preferred and unclean leader elections; Kafka's flags and output.

I/O: a JSON file, and the metadata log through the admin client. It also does what `kafka-preferred-replica-election`
did, whose JSON file it takes: that tool is `--election-type preferred` here.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from stratalog.clients.admin.admin import Admin
from stratalog.jobs.command.arguments import Parser, add_cluster_flags, client_properties, cluster_root, timeout_ms
from stratalog.jobs.command.terminal import DONE, UsageError, run
from stratalog.replication.controller.preferred_leaders import ElectionType
from stratalog.storage.errors import ElectionNotNeededError, StratalogError
from stratalog.storage.records import TopicPartition

TYPES = {"preferred": ElectionType.PREFERRED, "unclean": ElectionType.UNCLEAN}
PURPOSE = "This tool attempts to elect a new leader for a set of topic partitions."
EPILOG = """examples (ROOT is the metadata root that strata-cluster printed):
  {prog} --root ROOT --election-type preferred --all-topic-partitions
  {prog} --root ROOT --election-type unclean --topic events --partition 3
  {prog} --root ROOT --election-type preferred --path-to-json-file election.json
where election.json holds
  {{"partitions": [{{"topic": "events", "partition": 0}}, {{"topic": "events", "partition": 1}}]}}

exit code: 0 when every partition was led as asked, before or now; 1 when one could not be
"""


class AdminCommandFailedError(UsageError):
    """What Kafka's tool ends with when a partition was not elected; the lines before it say which."""


def parser() -> Parser:
    """All flags of kafka-leader-election that mean something here."""
    made = Parser("leader_election", PURPOSE, "")
    made.epilog = EPILOG.format(prog=made.prog)
    add_cluster_flags(made)
    made.add_argument(
        "--election-type",
        metavar="<PREFERRED,UNCLEAN>",
        help='REQUIRED: Type of election to attempt. Possible values are "preferred" for preferred leader election or '
        '"unclean" for unclean leader election. If preferred election is selected, the election is only performed if '
        "the current leader is not the preferred leader for the topic partition. If unclean election is selected, the "
        "election is only performed if there are no leader for the topic partition.",
    )
    which = made.add_argument_group("for which partitions, exactly one of")
    which.add_argument(
        "--all-topic-partitions",
        action="store_true",
        help="Perform election on all of the eligible topic partitions based on the type of election (see the "
        "--election-type flag).",
    )
    which.add_argument("--topic", metavar="TOPIC", help="Name of topic for which to perform an election.")
    which.add_argument(
        "--path-to-json-file",
        metavar="FILE",
        help="The JSON file with the list of partition for which leader elections should be performed: "
        '{"partitions": [{"topic": "foo", "partition": 1}, {"topic": "foobar", "partition": 2}]}',
    )
    made.add_argument(
        "--partition",
        metavar="PARTITION",
        type=int,
        help="Partition id for which to perform an election. REQUIRED if --topic is specified.",
    )
    return made


def check_flags(given: argparse.Namespace) -> ElectionType:
    """The election asked for. UsageError in Kafka's words when flags lack or do not go together."""
    if given.election_type is None:
        raise UsageError("Missing required option(s): election-type")
    ways = {
        "topic": given.topic is not None,
        "all-topic-partitions": given.all_topic_partitions,
        "path-to-json-file": given.path_to_json_file is not None,
    }
    if sum(ways.values()) != 1:
        raise UsageError(f"One and only one of the following options is required: {', '.join(ways)}")
    if given.topic is not None and given.partition is None:
        raise UsageError("Missing required option(s): partition")
    if given.topic is None and given.partition is not None:
        raise UsageError("Option partition is only allowed if topic is used")
    election_type = TYPES.get(given.election_type.lower())
    if election_type is None:
        raise UsageError(f"{given.election_type} is not an election type: {' or '.join(TYPES)}")
    return election_type


def parse_partitions(text: str) -> list[TopicPartition]:
    """The partitions of a JSON file's text, in its order. UsageError in Kafka's words for what is none."""
    try:
        body = json.loads(text)
    except ValueError as reason:
        raise UsageError("Replica election data is empty") from reason
    if not isinstance(body, dict) or "partitions" not in body:
        raise UsageError('Replica election data is missing "partitions" field')
    try:
        named = [TopicPartition(str(row["topic"]), int(row["partition"])) for row in body["partitions"]]
    except (KeyError, TypeError, ValueError) as reason:
        raise UsageError(f"Each partition has a topic and a partition; found {reason}") from reason
    twice = sorted({str(each) for each in named if named.count(each) > 1})
    if twice:
        raise UsageError(f"Replica election data contains duplicate partitions: {','.join(twice)}")
    return named


def asked_partitions(given: argparse.Namespace) -> list[TopicPartition] | None:
    """What the flags name; None: all partitions."""
    if given.all_topic_partitions:
        return None
    if given.topic is not None:
        return [TopicPartition(given.topic, given.partition)]
    try:
        text = Path(given.path_to_json_file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as reason:
        raise UsageError(f"{given.path_to_json_file} cannot be read: {reason}") from reason
    return parse_partitions(text)


def answer_lines(election_type: ElectionType, answers: Mapping[TopicPartition, StratalogError | None]) -> list[str]:
    """What Kafka's tool prints: one line for all that were elected, one for those that needed none, one an error."""
    elected = [str(named) for named, error in answers.items() if error is None]
    settled = [str(named) for named, error in answers.items() if isinstance(error, ElectionNotNeededError)]
    lines = []
    if elected:
        partitions = ", ".join(elected)
        lines.append(f"Successfully completed leader election ({election_type}) for partitions {partitions}")
    if settled:
        lines.append(f"Valid replica already elected for partitions {', '.join(settled)}")
    lines += [
        f"Error completing leader election ({election_type}) for partition: {named}: {error.name}: {error}"
        for named, error in _failed(answers).items()
    ]
    return lines


def _failed(answers: Mapping[TopicPartition, StratalogError | None]) -> dict[TopicPartition, StratalogError]:
    return {
        named: error
        for named, error in answers.items()
        if error is not None and not isinstance(error, ElectionNotNeededError)
    }


def leader_election(arguments: Sequence[str] | None) -> int:
    """The tool without its terminal: raises what went wrong."""
    given = parser().parse(arguments)
    election_type = check_flags(given)
    partitions = asked_partitions(given)
    wait_ms = timeout_ms(client_properties(given.command_config))
    with Admin(cluster_root(given), timeout_ms=wait_ms) as admin:
        answers = admin.elect_leaders(election_type, partitions)
    print("".join(f"{line}\n" for line in answer_lines(election_type, answers)), end="")
    failed = _failed(answers)
    if failed:
        raise AdminCommandFailedError(f"{len(failed)} replica(s) could not be elected")
    return DONE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool; the exit code."""
    return run(lambda: leader_election(arguments))


if __name__ == "__main__":
    sys.exit(main())
