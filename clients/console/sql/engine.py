"""The child process of one SQL statement: plans it over empty tables, asks for the rows that it needs, runs it.

I/O: standard input and output, in frames. It is run as a script, isolated from the environment, and imports nothing of
the project but `json_path` beside it. The kernel bounds its memory, processor time and files: it can open no file to
write. Its parent ends it.

A frame is its length, 4 bytes, big-endian, and its bytes. The parent sends a JSON object (`sql`, `tables`: name ->
number of a schema, `qualified`: name -> its two parts, `schemas`: Arrow IPC in base64, `bounds`); the child answers
with a JSON object (`scans` or `error`); the parent sends for each scan the rows as frames of one Arrow IPC stream and
an empty frame; the child answers with the result (`columns`, `rows`, `is_cut`, or `error`).
"""

from __future__ import annotations

import base64
import io
import json
import math
import os
import resource
import struct
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib import import_module
from typing import Any, BinaryIO

import pyarrow as pa

BATCH_ROWS = 4_096
UNTIL, FROM = "end", "start"
_BOUNDED = ("partition", "offset", "timestamp", "_partition", "_offset")
QUALIFIERS = ("typed", "delta")
"""The first parts of names with two."""
_OTHERWISE = ("datafusion.public.", "datafusion.", "public.")
"""How a statement may begin a name that is known without it."""


class StreamOfFrames(io.RawIOBase):
    """The frames of a pipe, up to an empty one, as a file that Arrow reads."""

    def __init__(self, pipe: BinaryIO) -> None:
        super().__init__()
        self._pipe = pipe
        self._left = b""
        self._is_over = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left and not self._is_over:
            self._left = read_frame(self._pipe)
            self._is_over = not self._left
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def drain(self) -> None:
        """Read the rest of the frames."""
        while not self._is_over:
            self._is_over = not read_frame(self._pipe)
        self._left = b""


def read_frame(pipe: BinaryIO) -> bytes:
    """The next frame; EOFError when the other side is gone."""
    head = pipe.read(4)
    if len(head) < 4:
        raise EOFError("the other side is gone")
    (length,) = struct.unpack(">I", head)
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError("the other side is gone")
    return data


def write_frame(pipe: BinaryIO, data: bytes) -> None:
    """Send a frame."""
    pipe.write(struct.pack(">I", len(data)))
    pipe.write(data)
    pipe.flush()


def bound_process(memory_bytes: int, seconds: float) -> None:
    """Bound this process: memory beside what it has now, processor time, no files to write, no core."""
    with open("/proc/self/statm", encoding="ascii") as file:
        now_bytes = int(file.read().split()[0]) * resource.getpagesize()
    limits = {
        resource.RLIMIT_AS: now_bytes + memory_bytes + (256 << 20),  # stacks of threads
        resource.RLIMIT_CPU: math.ceil(seconds * (os.cpu_count() or 1)) + 2,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
    }
    for limit, value in limits.items():
        resource.setrlimit(limit, (value, value))


# -- planning ------------------------------------------------------------------------------------------------------


def new_context(memory_bytes: int) -> Any:
    """A session without files, whose SQL is Spark's as far as DataFusion has it."""
    import datafusion
    from datafusion.catalog import Schema

    json_object = import_module("json_path").json_object  # beside this script
    runtime = datafusion.RuntimeEnvBuilder().with_disk_manager_disabled().with_greedy_memory_pool(memory_bytes)
    settings = {
        "datafusion.sql_parser.dialect": "spark",
        "datafusion.sql_parser.enable_ident_normalization": "false",
        "datafusion.sql_parser.recursion_limit": "50",
    }
    config = datafusion.SessionConfig(settings).with_target_partitions(2).with_information_schema(False)
    context = datafusion.SessionContext(config, runtime)
    context.enable_spark_functions()
    for qualifier in QUALIFIERS:
        context.catalog().register_schema(qualifier, Schema.memory_schema())

    def get_json_object(texts: pa.Array, paths: pa.Array) -> pa.Array:
        pairs = zip(texts.to_pylist(), paths.to_pylist(), strict=True)
        return pa.array([json_object(text, path) for text, path in pairs], pa.string())

    types = [pa.string(), pa.string()]
    context.register_udf(datafusion.udf(get_json_object, types, pa.string(), "stable", "get_json_object"))
    return context


def planned(context: Any, sql: str) -> Any:
    """The statement as a frame; refuses what changes anything."""
    import datafusion

    options = datafusion.SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
    return context.sql_with_options(sql, options)


def scans_of(plan: Any, tables: Mapping[str, pa.Schema]) -> dict[str, dict[str, Any]]:
    """Which of the tables an optimized plan reads: name -> `columns`, `start` and `end` by column, `limit`.

    Bounds are half-open, of partition, offset and timestamp (microseconds); they may be wider than the condition. A
    subquery in an expression is in the plan's text alone: a table that it reads is read whole.
    """
    found: dict[str, dict[str, Any]] = {}
    seen: Counter[str] = Counter()
    for name, scan in _scans(plan, None):
        refuse_otherwise_named(name, tables)
        known = found.get(name)
        found[name] = scan if known is None else _widest(known, scan)
        seen[name] += 1
    for name, count in scans_in_text(plan.display_indent(), tables).items():
        if count != seen[name]:
            found[name] = {"columns": tables[name].names, FROM: {}, UNTIL: {}, "limit": None}
    return {name: scan for name, scan in found.items() if name in tables}


def scans_in_text(text: str, tables: Iterable[str]) -> Counter[str]:
    """How often each table is scanned, by the text of a plan.

    >>> scans_in_text("Filter: a\\n  TableScan: t projection=[a]\\n  TableScan: t u, fetch=3", ["t", "t u"])
    Counter({'t': 1, 't u': 1})
    """
    names = sorted(tables, key=len, reverse=True)
    found: Counter[str] = Counter()
    for line in text.splitlines():
        before, mark, rest = line.strip().partition("TableScan: ")
        if mark and not before:
            refuse_otherwise_named(rest.replace(",", " ").split(" ", 1)[0], names)
            found.update([name for name in names if rest == name or rest.startswith((f"{name} ", f"{name},"))][:1])
    return found


def refuse_otherwise_named(name: str, tables: Iterable[str]) -> None:
    """ValueError for a table that is known by another name, whose rows would not be asked for.

    >>> refuse_otherwise_named("public.t", ["t"])
    Traceback (most recent call last):
    ...
    ValueError: public.t is written t
    """
    for before in _OTHERWISE:
        if name.startswith(before) and name not in tables and name.removeprefix(before) in tables:
            raise ValueError(f"{name} is written {name.removeprefix(before)}")


def _scans(plan: Any, condition: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    variant = plan.to_variant()
    kind = type(variant).__name__
    if kind == "TableScan":
        start, end = _bounds_of(condition)
        columns = [name for _, name in variant.projection()]
        yield variant.table_name(), {"columns": columns, FROM: start, UNTIL: end, "limit": variant.fetch()}
    inner = variant.predicate() if kind == "Filter" else None
    for each in plan.inputs():
        yield from _scans(each, inner)


def _widest(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {
        "columns": list(dict.fromkeys([*one["columns"], *other["columns"]])),
        FROM: {name: min(at, other[FROM][name]) for name, at in one[FROM].items() if name in other[FROM]},
        UNTIL: {name: max(at, other[UNTIL][name]) for name, at in one[UNTIL].items() if name in other[UNTIL]},
        "limit": None,
    }


def _bounds_of(condition: Any) -> tuple[dict[str, int], dict[str, int]]:
    start: dict[str, int] = {}
    end: dict[str, int] = {}
    for part in _conjuncts(condition):
        bound = _bound_of(part)
        if bound is None:
            continue
        name, operator, value = bound
        if operator in (">", ">=", "="):
            at = value + (operator == ">")
            start[name] = max(at, start.get(name, at))
        if operator in ("<", "<=", "="):
            at = value + (operator != "<")
            end[name] = min(at, end.get(name, at))
    return start, end


def _conjuncts(condition: Any) -> Iterator[Any]:
    if condition is None:
        return
    if condition.variant_name() == "BinaryExpr":
        parts = condition.to_variant()
        if parts.op() == "AND":
            yield from _conjuncts(parts.left())
            yield from _conjuncts(parts.right())
            return
    yield condition


def _bound_of(part: Any) -> tuple[str, str, int] | None:
    """(column, operator, value) of a comparison of one of the bounded columns with a number or a time."""
    if part.variant_name() != "BinaryExpr":
        return None
    binary = part.to_variant()
    left, right, operator = binary.left(), binary.right(), binary.op()
    if left.variant_name() == "Literal":
        left, right = right, left
        operator = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(operator, operator)
    if operator not in ("=", "<", "<=", ">", ">=") or left.variant_name() != "Column":
        return None
    name = left.to_variant().name()
    if name not in _BOUNDED or right.variant_name() != "Literal":
        return None
    value = right.python_value()
    value = value.as_py() if isinstance(value, pa.Scalar) else value
    if isinstance(value, datetime):
        since = value.replace(tzinfo=value.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        value = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return (name, operator, value) if isinstance(value, int) and not isinstance(value, bool) else None


# -- the answer ----------------------------------------------------------------------------------------------------


def shown(value: Any, cell_bytes: int) -> Any:
    """A value that JSON has; text and bytes are cut to about `cell_bytes`."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return _text(value, cell_bytes)
    if isinstance(value, str):
        return value if len(value) <= cell_bytes else f"{value[:cell_bytes]}… ({len(value)} characters)"
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {str(name): shown(each, cell_bytes) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [shown(each, cell_bytes) for each in value[:cell_bytes]]
    return str(value)[:cell_bytes]


def _text(value: bytes, cell_bytes: int) -> str:
    """UTF-8 as text, other bytes as hex behind 0x."""
    head = value[:cell_bytes]
    rest = f"… ({len(value)} bytes)" if len(value) > cell_bytes else ""
    try:
        return head.decode() + rest
    except UnicodeDecodeError as reason:
        if rest and reason.start > len(head) - 4:  # cut inside a character
            return head[: reason.start].decode() + rest
        return f"0x{head.hex()}{rest}"


def plain_column(column: pa.Array) -> list[Any]:
    """The values of a column; times as text, since Python's dates end before Arrow's."""
    kind = column.type
    if pa.types.is_temporal(kind):
        return list(column.cast(pa.string()).to_pylist())
    return list(column.to_pylist())


def answer_of(frame: Any, bounds: dict[str, Any]) -> dict[str, Any]:
    """The rows of a frame up to the bounds, as JSON values."""
    schema = frame.schema()
    names, types = [field.name for field in schema], [str(field.type) for field in schema]
    rows: list[list[Any]] = []
    size = 0
    for batch in frame.execute_stream():
        columns = [plain_column(each) for each in batch.to_pyarrow().columns]
        for values in zip(*columns, strict=True):
            row = [shown(value, bounds["cell_bytes"]) for value in values]
            size += len(json.dumps(row))
            if len(rows) >= bounds["rows"] or size > bounds["answer_bytes"]:
                return {"columns": names, "types": types, "rows": rows, "is_cut": True}
            rows.append(row)
    return {"columns": names, "types": types, "rows": rows, "is_cut": False}


def register(context: Any, parts: Sequence[str], schema: pa.Schema, batches: list[pa.RecordBatch]) -> None:
    """Make a table known, in place of one of the name, which has one part or two."""
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in parts)
    if context.table_exist(quoted):
        context.deregister_table(quoted)
    context.register_record_batches(quoted, [batches or [pa.RecordBatch.from_pylist([], schema)]])


def run(source: BinaryIO, sink: BinaryIO) -> None:
    """Serve one statement."""
    request = json.loads(read_frame(source))
    bounds = request["bounds"]
    context = new_context(bounds["memory_bytes"])
    schemas = [pa.ipc.read_schema(pa.py_buffer(base64.b64decode(each))) for each in request["schemas"]]
    tables = {name: schemas[number] for name, number in request["tables"].items()}
    parts = {name: request["qualified"].get(name, [name]) for name in tables}
    for name, schema in tables.items():
        register(context, parts[name], schema, [])
    bound_process(bounds["memory_bytes"], bounds["seconds"])
    wanted = scans_of(planned(context, request["sql"]).optimized_logical_plan(), tables)
    write_frame(sink, json.dumps({"scans": wanted}).encode())
    for name in wanted:
        frames = StreamOfFrames(source)
        with pa.ipc.open_stream(pa.PythonFile(io.BufferedReader(frames), "r")) as reader:
            batches = list(reader)
            schema = reader.schema
        frames.drain()
        whole = tables[name]
        filled = [with_all_columns(batch, whole) for batch in batches] if len(schema) < len(whole) else batches
        register(context, parts[name], whole, filled)
    answer = answer_of(planned(context, request["sql"]), bounds)
    write_frame(sink, json.dumps(answer).encode())


def with_all_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with columns that the statement does not read, as nulls: the plan is made again over all columns."""
    columns = [
        batch.column(field.name) if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def main() -> int:
    """Serve one statement on standard input and output; an error is an answer."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no frame
    try:
        run(source, sink)
    except EOFError:
        return 1
    except MemoryError:
        write_frame(sink, json.dumps({"error": "memory", "reason": "no memory is left"}).encode())
    except BaseException as reason:  # noqa: BLE001 -- DataFusion's panics are of this kind; the parent answers with it
        text = str(reason)[:2_000]
        kind = "memory" if "Resources exhausted" in text else "refused"
        write_frame(sink, json.dumps({"error": kind, "reason": text}).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
