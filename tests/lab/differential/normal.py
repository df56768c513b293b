"""Answers without what differs from run to run, and their differences field by field. Pure."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

ALWAYS_OTHER = {
    "host", "port", "clusterId", "throttleTimeMs", "logDir", "partitionSize", "totalBytes", "usableBytes",
    "clientHost", "controllerId", "finalizedFeaturesEpoch",
}  # fmt: skip
"""Fields whose values are each cluster's own."""
SIZES = {"totalBytes", "usableBytes"}
"""Of these -1, which means unknown, too."""
IDENTITY = (
    "name", "topic", "topicName", "topicId", "groupId", "transactionalId", "resourceType", "resourceName",
    "partitionIndex", "partition", "partitionId", "index", "apiKey", "key", "nodeId", "brokerId", "replicaId",
    "memberId", "user", "entityType", "entityName", "producerId", "mechanism", "principal", "operation", "source",
    "patternType", "permissionType",
)  # fmt: skip
"""Fields that say which item of a list it is: lists are compared by them, in no order."""
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")
_ADDRESS = re.compile(r"(127\.0\.0\.1|localhost):\d+")
_TIME = re.compile(r"(?i)time(stamp)?(Ms)?$")
_YEAR_2001_MS = 10**12
SHORT = 8
"""Texts up to this length might stand in an answer by chance."""
NO_ID = "0" * 32


def normal(answer: Any, variables: Mapping[str, Any], keep: str = "") -> Any:
    """An answer in which ids that a script knows are its variables, other ids and times are told to be such.

    An empty message of an error is none.
    """
    texts = _texts(variables)
    numbers = {value: f"${name}" for name, value in variables.items() if name.startswith("producer")}
    return _normal("", answer, texts, numbers, keep)


def _texts(variables: Mapping[str, Any]) -> dict[str, str]:
    """What stands for a variable's text, also for an id as Kafka's messages write it."""
    texts = {}
    for name, value in variables.items():
        if isinstance(value, str) and len(value) > SHORT:
            texts[value] = f"${name}"
            if re.fullmatch("[0-9a-f]{32}", value):
                texts[base64.urlsafe_b64encode(bytes.fromhex(value)).decode().rstrip("=")] = f"${name}"
    return texts


def named(text: str, variables: Mapping[str, Any]) -> str:
    """The text with variables instead of their values."""
    for value, name in _texts(variables).items():
        text = text.replace(value, name)
    return text


def without(answer: Any, own: Iterable[str], path: str = "") -> Any:
    """The answer with `<own>` at these paths, except for nulls."""
    patterns = list(own)
    if not patterns:
        return answer
    if isinstance(answer, dict):
        return {name: without(each, patterns, f"{path}.{name}" if path else name) for name, each in answer.items()}
    if isinstance(answer, list) and any(isinstance(item, dict) for item in answer):
        return [without(item, patterns, f"{path}[]") for item in answer]
    is_own = answer is not None and any(matches(pattern, path) for pattern in patterns)
    return "<own>" if is_own else answer


def _normal(field: str, value: Any, texts: Mapping[str, str], numbers: Mapping[int, str], keep: str) -> Any:
    if isinstance(value, dict):
        return {name: _normal(name, each, texts, numbers, keep) for name, each in value.items()}
    if isinstance(value, list):
        items = [_normal(field, each, texts, numbers, keep) for each in value]
        if not any(isinstance(item, dict) for item in items):
            return items
        kept = [item for item in items if not keep or keep in json.dumps(identity(item)) or _is_part(item)]
        return sorted(kept, key=lambda item: json.dumps(identity(item)))
    if field in ALWAYS_OTHER and value not in (None, "") and (value != -1 or field in SIZES):
        return "<own>"
    if field == "errorMessage" and not value:
        return None
    if isinstance(value, str):
        for text, name in texts.items():
            value = value.replace(text, name)
        return _ADDRESS.sub("<address>", _UUID.sub(lambda found: NO_ID if found[0] == NO_ID else "<id>", value))
    if _TIME.search(field) and isinstance(value, int) and value > _YEAR_2001_MS:
        return "<time>"
    if field in {"producerId", "sessionId"} and isinstance(value, int) and value > 0:
        return numbers.get(value, "<id>")
    return value


def _is_part(item: dict[str, Any]) -> bool:
    """A partition or the like: it is in what is named."""
    return not any(isinstance(value, str) for value in identity(item))


def identity(item: Any) -> list[Any]:
    """What tells an item of a list from others, possibly nothing."""
    if not isinstance(item, dict):
        return []
    return [item[name] for name in IDENTITY if isinstance(item.get(name), str | int)]


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each value by its path: `topics[a].partitions[0].errorCode`."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from flat(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        seen: dict[str, int] = {}
        for item in value:
            label = ",".join(map(str, identity(item)))
            seen[label] = seen.get(label, 0) + 1
            yield from flat(item, f"{path}[{label}{'#' + str(seen[label]) if seen[label] > 1 else ''}]")
    else:
        yield path, value


def differences(theirs: Any, ours: Any) -> dict[str, tuple[Any, Any]]:
    """(Kafka's value, our value) by path; "absent" for one that only the other has."""
    kafka, stratalog = dict(flat(theirs)), dict(flat(ours))
    paths = [*kafka, *(path for path in stratalog if path not in kafka)]
    pairs = {path: (kafka.get(path, "absent"), stratalog.get(path, "absent")) for path in paths}
    return {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}


def matches(pattern: str, path: str) -> bool:
    """Whether a path of a script means this one; `*` is any text."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), path) is not None


def value_at(answer: Any, path: str) -> Any:
    """The first value of an answer whose path matches. LookupError."""
    for found, value in flat(answer):
        if matches(path, found):
            return value
    raise LookupError(f"{path} is not in {json.dumps(answer)[:2000]}")
