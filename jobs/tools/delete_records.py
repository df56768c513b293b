"""`kafka-delete-records` for stratalog: delete the records of partitions before an offset; Kafka's flags and output.

I/O: a JSON file, and the cluster through the admin client; the brokers run in `strata-cluster` or elsewhere.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from stratalog.clients.admin.admin import Admin
from stratalog.jobs.command.arguments import Parser, add_cluster_flags, client_properties, cluster_root, timeout_ms
from stratalog.jobs.command.terminal import DONE, UsageError, run
from stratalog.replication.leader.delete_records import DeletedRecords
from stratalog.storage.records import TopicPartition

VERSION = 1
PURPOSE = "This tool helps to delete records of the given partitions down to the specified offset."
EPILOG = """example (ROOT is the metadata root that strata-cluster printed):
  {prog} --root ROOT --offset-json-file offsets.json
where offsets.json holds
  {{"partitions": [{{"topic": "events", "partition": 1, "offset": 1000}}], "version": 1}}
and offset -1 means all records that are committed.

exit code: 0 when the request was made, also if a partition's answer is an error; 1 when it could not be made
"""


def parser() -> Parser:
    """All flags of kafka-delete-records that mean something here."""
    made = Parser("delete_records", PURPOSE, "")
    made.epilog = EPILOG.format(prog=made.prog)
    add_cluster_flags(made)
    made.add_argument(
        "--offset-json-file",
        metavar="FILE",
        help="REQUIRED: The JSON file with offset per partition. The format to use is: "
        '{"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}',
    )
    return made


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """The offsets of a JSON file's text, in its order. UsageError in Kafka's words for what is none."""
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
    twice = [str(named) for named in offsets if sum(named == other for other, _ in rows) > 1]
    if twice:
        raise UsageError(f"Offset json file contains duplicate topic partitions: {','.join(twice)}")
    return offsets


def answer_lines(answers: Mapping[TopicPartition, DeletedRecords]) -> list[str]:
    """A line for each partition, as Kafka prints it."""
    return [
        f"partition: {named}\tlow_watermark: {answer.low_watermark}"
        if answer.error is None
        else f"partition: {named}\terror: {answer.error}"
        for named, answer in answers.items()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool; the exit code."""
    return run(lambda: _delete(arguments))


def _delete(arguments: Sequence[str] | None) -> int:
    given = parser().parse(arguments)
    if given.offset_json_file is None:
        raise UsageError('Missing required argument "[offset-json-file]"')
    offsets = parse_offsets(Path(given.offset_json_file).read_text(encoding="utf-8"))
    wait_ms = timeout_ms(client_properties(given.command_config))
    with Admin(cluster_root(given), timeout_ms=wait_ms) as admin:
        print("Executing records delete operation", flush=True)
        answers = admin.delete_records(offsets)
    print("Records delete operation completed:")
    print("".join(f"{line}\n" for line in answer_lines(answers)), end="")
    return DONE


if __name__ == "__main__":
    sys.exit(main())
