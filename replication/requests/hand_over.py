"""The inbox of a broker: objects by which Spark sinks hand files over to a leader. Pure encoding.

`inbox/<id>.json` in the leader's root is the request, `inbox/<id>.answer.json` the answer. One object may hand over
files of several partitions that the broker leads; each has its own answer. A follower reports damage the same way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stratalog.replication.requests.produce import HandOverRequest, ProduceResponse
from stratalog.storage.errors import CorruptMessageError, StratalogError, UnverifiedTransactionError, error_for_code
from stratalog.storage.files.data_file import DataFile
from stratalog.storage.log.append import HandedFiles
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.storage.transactions import NO_EPOCH

INBOX_PREFIX = "inbox/"
ANSWER_SUFFIX = ".answer.json"
DAMAGE_REPORT_SUFFIX = ".suspect"
_STORED_AS = ("base_offset", "last_offset", "leader_epoch", "duplicate")


def request_path(request_id: str) -> str:
    return f"{INBOX_PREFIX}{request_id}.json"


def answer_path(request_id: str) -> str:
    return f"{INBOX_PREFIX}{request_id}{ANSWER_SUFFIX}"


def request_id_of(path: str) -> str | None:
    """The id of a request object's path; None for anything else in the inbox."""
    if not path.startswith(INBOX_PREFIX) or path.endswith(ANSWER_SUFFIX) or not path.endswith(".json"):
        return None
    return path.removeprefix(INBOX_PREFIX).removesuffix(".json")


def damage_report_path(topic_partition: TopicPartition) -> str:
    """The object of a follower's report that the leader's table looks damaged; one a partition."""
    return f"{INBOX_PREFIX}{topic_partition}{DAMAGE_REPORT_SUFFIX}"


def encode_damage_report(topic_partition: TopicPartition, path: str) -> bytes:
    """`path`: the file that could not be read; empty for other damage. It names no topic id: a leader
    examines the replica that it leads now, and nothing else follows from the report."""
    return json.dumps({"topic_partition": list(topic_partition), "path": path}).encode()


def decode_damage_report(data: bytes) -> tuple[TopicPartition, str]:
    """Partition and path of a damage report. CorruptMessageError for anything else."""
    try:
        body = json.loads(data)
        topic, partition = body["topic_partition"]
        return _named(topic, partition), str(body["path"])
    except Exception as reason:
        raise CorruptMessageError(f"not a damage report: {data[:200]!r} ({reason})") from reason


NEWER = {"is_transactional": False, "verified_offset": -1, "verified_leader_epoch": -1}
"""Values that mean the same as their absence."""


def encode_request(handed: Sequence[HandOverRequest], broker_epoch: int) -> bytes:
    """`broker_epoch`: the leader's registration that the writer knows; a later one refuses the request."""
    items, topic_ids = [_as_json(each) for each in handed], [each.partition.topic_id for each in handed]
    return json.dumps({"broker_epoch": broker_epoch, "handed": items, "topic_ids": topic_ids}).encode()


def _as_json(handed: HandOverRequest) -> dict[str, object]:
    """What a broker of an earlier release does not know is left out unless the request needs it."""
    values = {name: getattr(handed.handed, name) for name in HandedFiles.__slots__}
    return {
        "topic_partition": handed.topic_partition,
        **{name: value for name, value in values.items() if value != NEWER.get(name, ...)},
        "files": [file.as_json() for file in handed.handed.files],
        "acks": handed.acks,
        "timeout_ms": handed.timeout_ms,
    }


def decode_request(data: bytes) -> tuple[int, list[HandOverRequest]]:
    """`(broker_epoch, hand-overs)` of a request. CorruptMessageError for anything else.

    Writers of earlier releases name no topic ids: those of the partitions are empty then.
    """
    try:
        body = json.loads(data)
        handed = []
        topic_ids = body.get("topic_ids") or [""] * len(body["handed"])
        for topic_id, item in zip(topic_ids, body["handed"], strict=True):
            (topic, number), acks, timeout_ms = map(item.pop, ("topic_partition", "acks", "timeout_ms"))
            item.pop("base_sequence", None)  # of a writer of an earlier release, which gives none either
            files = HandedFiles(tuple(_file(each) for each in item.pop("files")), **item)
            _check_fields(files)
            partition = IdentifiedPartition(str(topic_id), _named(topic, number))
            handed.append(HandOverRequest(partition, files, int(acks), int(timeout_ms)))
        return int(body["broker_epoch"]), handed
    except Exception as reason:
        raise CorruptMessageError(f"not an inbox request: {data[:200]!r} ({reason})") from reason


def _file(values: Mapping[str, Any]) -> DataFile:
    numbers = [value for name, value in values.items() if name != "path"]
    if not isinstance(values["path"], str) or not all(each is None or type(each) is int for each in numbers):
        raise TypeError(f"no data file: {values!r:.200}")
    return DataFile(**values)


def _check_fields(files: HandedFiles) -> None:
    """TypeError unless each value is of its field's type: the loop that appends the files relies on it."""
    numbers = (files.batch_id, files.producer_id, files.producer_epoch, files.verified_offset)
    typed = [*((each, int) for each in numbers), (files.is_transactional, bool), (files.sink_id, str)]
    if not all(type(value) is kind for value, kind in typed):
        raise TypeError("a field of another type")


def _named(topic: object, partition: object) -> TopicPartition:
    """TypeError unless they are a name and a number."""
    if not isinstance(topic, str) or type(partition) is not int:
        raise TypeError(f"no partition: {topic!r:.100}, {partition!r:.100}")
    return TopicPartition(topic, partition)


def encode_answer(responses: Sequence[ProduceResponse]) -> bytes:
    return json.dumps(
        [
            {
                "topic_id": each.partition.topic_id,
                "topic": each.topic_partition.topic,
                "partition": each.topic_partition.partition,
                "error_code": each.error.code if each.error else 0,
                "error_message": str(each.error) if each.error else None,
                "unverified_at": each.error.log_end_offset
                if isinstance(each.error, UnverifiedTransactionError)
                else None,
                "unverified_in": each.error.leader_epoch
                if isinstance(each.error, UnverifiedTransactionError)
                else None,
                **{name: getattr(each, name) for name in _STORED_AS},
            }
            for each in responses
        ]
    ).encode()


def _error_of(item: Mapping[str, Any]) -> StratalogError | None:
    if item.get("unverified_at") is not None:
        epoch = item.get("unverified_in")  # not of a broker of an earlier release
        return UnverifiedTransactionError(
            item["error_message"], int(item["unverified_at"]), NO_EPOCH if epoch is None else int(epoch)
        )
    return error_for_code(item["error_code"], item["error_message"]) if item["error_code"] else None


def decode_answer(data: bytes) -> list[ProduceResponse]:
    try:
        return [
            ProduceResponse(
                IdentifiedPartition(item.get("topic_id", ""), TopicPartition(item["topic"], item["partition"])),
                error=_error_of(item),
                **{name: item[name] for name in _STORED_AS},
            )
            for item in json.loads(data)
        ]
    except Exception as reason:
        raise CorruptMessageError(f"not an inbox answer: {data[:200]!r} ({reason})") from reason
