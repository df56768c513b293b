"""`kafka-leader-election` for stratalog: preferred and unclean leader elections; Kafka's flags and output.

I/O: a JSON file, and the metadata log through the admin client. It also replaces `kafka-preferred-replica-election`:
that tool is `--election-type preferred` here, with the same JSON file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

from stratalog import ElectionType, StratalogError, TopicPartition
from stratalog.jobs.command.arguments import CLUSTER
from stratalog.jobs.command.flags import Flag, Rule, switch
from stratalog.jobs.command.opened import open_cluster
from stratalog.jobs.command.properties import read_text
from stratalog.jobs.command.terminal import DONE, UsageError
from stratalog.jobs.command.tool import Command
from stratalog.storage.errors import ElectionNotNeededError

WAYS = ("topic", "all-topic-partitions", "path-to-json-file")
TYPES = {"preferred": ElectionType.PREFERRED, "unclean": ElectionType.UNCLEAN}
PURPOSE = "This tool attempts to elect a new leader for a set of topic partitions."
EPILOG = """examples (for --root ROOT also --bootstrap-server HOST:PORT):
  {prog} --root ROOT --election-type preferred --all-topic-partitions
  {prog} --root ROOT --election-type unclean --topic events --partition 3
  {prog} --root ROOT --election-type preferred --path-to-json-file election.json
where election.json holds
  {"partitions": [{"topic": "events", "partition": 0}, {"topic": "events", "partition": 1}]}

exit code: 0 when every partition was led as asked, before or now; 1 when one could not be
"""


class AdminCommandFailedError(UsageError):
    """A partition was not elected; the lines before it name the partition."""


# fmt: off
FLAGS = {**CLUSTER, "": (
    Flag("election-type", "<PREFERRED,UNCLEAN>", 'REQUIRED: Type of election to attempt. Possible values are '
         '"preferred" for preferred leader election or "unclean" for unclean leader election. If preferred election is '
         "selected, the election is only performed if the current leader is not the preferred leader for the topic "
         "partition. If unclean election is selected, the election is only performed if there are no leader for the "
         "topic partition."),
    Flag("partition", "PARTITION", "Partition id for which to perform an election. REQUIRED if --topic is specified.",
         int),
), "for which partitions, exactly one of": (
    switch("all-topic-partitions", "Perform election on all of the eligible topic partitions based on the type of "
           "election (see the --election-type flag)."),
    Flag("topic", "TOPIC", "Name of topic for which to perform an election."),
    Flag("path-to-json-file", "FILE", "The JSON file with the list of partition for which leader elections should be "
         'performed: {"partitions": [{"topic": "foo", "partition": 1}, {"topic": "foobar", "partition": 2}]}'),
)}
RULES = (
    *Rule.required("election-type", message="Missing required option(s): {}"),
    *Rule.exactly_one(WAYS, f"One and only one of the following options is required: {', '.join(WAYS)}"),
    *Rule.required("partition", "topic", "Missing required option(s): {}"),
    Rule("Option partition is only allowed if topic is used", "partition", "topic"),
)
# fmt: on


def election_type_of(given: argparse.Namespace) -> ElectionType:
    """The election asked for. UsageError for an unknown one."""
    election_type = TYPES.get(given.election_type.lower())
    if election_type is None:
        raise UsageError(f"{given.election_type} is not an election type: {' or '.join(TYPES)}")
    return election_type


def parse_partitions(text: str) -> list[TopicPartition]:
    """The partitions in a JSON file's text, in its order. UsageError in Kafka's words when it is malformed."""
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
    """The partitions that the flags name; None: all."""
    if given.all_topic_partitions:
        return None
    if given.topic is not None:
        return [TopicPartition(given.topic, given.partition)]
    return parse_partitions(read_text(given.path_to_json_file))


def answer_lines(election_type: ElectionType, answers: Mapping[TopicPartition, StratalogError | None]) -> list[str]:
    """Kafka's lines: one for all that were elected, one for all that needed no election, one for each error."""
    elected = [str(named) for named, error in answers.items() if error is None]
    not_needed = [str(named) for named, error in answers.items() if isinstance(error, ElectionNotNeededError)]
    lines = []
    if elected:
        partitions = ", ".join(elected)
        lines.append(f"Successfully completed leader election ({election_type}) for partitions {partitions}")
    if not_needed:
        lines.append(f"Valid replica already elected for partitions {', '.join(not_needed)}")
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


def leader_election(given: argparse.Namespace) -> int:
    """Do what the flags ask for; the exit code."""
    election_type, partitions = election_type_of(given), asked_partitions(given)
    with open_cluster(given) as opened:
        answers = opened.admin.elect_leaders(election_type, partitions)
    print("".join(f"{line}\n" for line in answer_lines(election_type, answers)), end="")
    failed = _failed(answers)
    if failed:
        raise AdminCommandFailedError(f"{len(failed)} replica(s) could not be elected")
    return DONE


main = Command("leader-election", PURPOSE, EPILOG, FLAGS, leader_election, RULES)
