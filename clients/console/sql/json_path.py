"""A value of a JSON text by its path, as Spark's `get_json_object`. Pure. It imports nothing of the project."""

from __future__ import annotations

import json
import re
from typing import Any

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['([^']*)'\]")


def steps_of(path: str) -> list[str | int] | None:
    """The steps of a path; None for one that is not of the language.

    >>> steps_of("$.a[0].b"), steps_of("a")
    (['a', 0, 'b'], None)
    """
    if not path.startswith("$"):
        return None
    steps: list[str | int] = []
    position = 1
    while position < len(path):
        found = _STEP.match(path, position)
        if found is None:
            return None
        name, index, quoted = found.groups()
        steps.append(int(index) if index is not None else name if name is not None else quoted)
        position = found.end()
    return steps


def json_object(text: str | bytes | None, path: str | None) -> str | None:
    """The value at the path as text; None when the text is not JSON or has no such value.

    >>> json_object('{"a": {"b": [1, 2]}}', "$.a.b[1]"), json_object('{"a": "x"}', "$.a")
    ('2', 'x')
    """
    steps = None if path is None else steps_of(path)
    if text is None or steps is None:
        return None
    try:
        value = json.loads(text)
        for step in steps:
            value = _at(value, step)
    except (ValueError, RecursionError):
        return None
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _at(value: Any, step: str | int) -> Any:
    """The part of a JSON value; None when it has no such part."""
    if isinstance(step, int):
        return value[step] if isinstance(value, list) and step < len(value) else None
    return value.get(step) if isinstance(value, dict) else None
