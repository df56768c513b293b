"""`kafka-delete-records` for stratalog: delete the records of partitions before an offset; Kafka's flags and output.

I/O: a JSON file, and the cluster through the admin client; the brokers run in `strata cluster` or elsewhere.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

from stratalog.jobs.command.arguments import CLUSTER
from stratalog.jobs.command.flags import Flag, Rule
from stratalog.jobs.command.opened import open_cluster
from stratalog.jobs.command.properties import read_text
from stratalog.jobs.command.terminal import DONE, UsageError
from stratalog.jobs.command.tool import Command
from stratalog.jobs.command.words import Words
from stratalog.jobs.text.reassignment import duplicates
from stratalog.replication.requests.delete_records import DeletedRecords
from stratalog.storage.records import TopicPartition

VERSION = 1
PURPOSE = "This tool helps to delete records of the given partitions down to the specified offset."
EPILOG = """example (for --root ROOT also --bootstrap-server HOST:PORT):
  {prog} --root ROOT --offset-json-file offsets.json
where offsets.json holds
  {"partitions": [{"topic": "events", "partition": 1, "offset": 1000}], "version": 1}
and offset -1 means all records that are committed.

exit code: 0 when the request was made, also if a partition's answer is an error; 1 when it could not be made
"""


# fmt: off
FLAGS = {**CLUSTER, "": (
    Flag("offset-json-file", "FILE", "REQUIRED: The JSON file with offset per partition. The format to use is: "
         '{"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}'),
)}
# fmt: on


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """The offsets in a JSON file's text, in its order. UsageError in Kafka's words when it is malformed."""
    try:
        body = json.loads(text)
    except ValueError as reason:
        raise UsageError("The input string is not a valid JSON") from reason
    if not isinstance(body, dict) or "partitions" not in body:
        raise UsageError("Missing partitions field")
    if body.get("version", VERSION) != VERSION:
        raise UsageError(f"Not supported version field value {body['version']}")
    try:
        rows = [(TopicPartition(str(p["topic"]), int(p["partition"])), int(p["offset"])) for p in body["partitions"]]
    except (KeyError, TypeError, ValueError) as reason:
        raise UsageError(f"Each partition has a topic, a partition and an offset; found {reason}") from reason
    offsets = dict(rows)
    twice = duplicates(named for named, _ in rows)
    if twice:
        raise UsageError(f"Offset json file contains duplicate topic partitions: {','.join(map(str, twice))}")
    return offsets


def answer_lines(answers: Mapping[TopicPartition, DeletedRecords]) -> list[str]:
    """A line for each partition, as Kafka prints it."""
    return [
        f"partition: {named}\tlow_watermark: {answer.low_watermark}"
        if answer.error is None
        else f"partition: {named}\terror: {answer.error}"
        for named, answer in answers.items()
    ]


def delete_records(given: argparse.Namespace) -> int:
    """Do what the flags ask for; the exit code."""
    offsets = parse_offsets(read_text(given.offset_json_file))
    with open_cluster(given) as opened:
        print("Executing records delete operation", flush=True)
        answers = opened.admin.delete_records(offsets)
    print("Records delete operation completed:")
    print("".join(f"{line}\n" for line in answer_lines(answers)), end="")
    return DONE


main = Command(
    "delete-records",
    PURPOSE,
    EPILOG,
    FLAGS,
    delete_records,
    Rule.required("offset-json-file"),
    Words(values=("offset-json-file",)),
)
