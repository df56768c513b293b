"""JSON payloads as typed columns. Pure.

An object with properties is a struct, one with `additionalProperties` alone a map; integer is long, number double;
an array has its items' type. Values without one type of these (several types, no type, a schema that contains itself)
are a string with their JSON. Every column may be null, since `required` may be broken. The schema's other rules are not
checked. Writers' schemas are not needed: a JSON value says what it is.

Arrow reads rows in pieces where it gives what `json_text` gives row by row: a value has one outcome, whatever stands
beside it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from stratalog.clients.schemas.columns.json_text import (
    DEPTH_MAX,
    Fit,
    JsonMisfitError,
    any_text_of,
    boolean_of,
    double_of,
    long_of,
    parsed,
    text_of,
    wrong,
)
from stratalog.clients.schemas.columns.reader import Meanings, ReadValues, values_column
from stratalog.clients.schemas.compatibility.levels import ResolvedSchema
from stratalog.clients.schemas.schema import loads

_PIECE_ROWS = 1_024
ANY_JSON = "any JSON"
"""The meaning of a string with the JSON of a value that has no one type."""


class _Shape(NamedTuple):
    """A column type, and what makes a value of it."""

    type: pa.DataType
    fit: Fit
    is_plain: bool = True
    """Whether Arrow's own JSON reader makes the same values."""
    meanings: Meanings = MappingProxyType({})


class JsonColumns:
    """Columns of a JSON schema. InvalidSchemaError for a text that is no JSON."""

    def __init__(self, reader: ResolvedSchema) -> None:
        contents = loads(reader.schema)
        documents = {name: loads(each) for name, each in reader.references.items()}
        self._shape = _Shapes(contents, documents).of(contents, contents, (id(contents),))
        self._is_plain = self._shape.is_plain and pa.types.is_struct(self._shape.type)

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the values."""
        return self._shape.type

    @property
    def meanings(self) -> Meanings:
        """Which strings are text, and which are JSON."""
        return self._shape.meanings

    @property
    def has_message_indexes(self) -> bool:
        return False

    def read(
        self, payloads: pa.Array, writer: ResolvedSchema | None = None, message_indexes: tuple[int, ...] | None = None
    ) -> ReadValues:
        """The values of payloads, whoever wrote them."""
        del writer, message_indexes
        if not self._is_plain or not len(payloads):
            return self._row_by_row(payloads)
        pieces: list[pa.Array] = []
        errors: dict[int, str] = {}
        for start in range(0, len(payloads), _PIECE_ROWS):
            piece = payloads.slice(start, _PIECE_ROWS)
            values = self._in_one_piece(piece)
            if values is None:
                values, failed = self._row_by_row(piece)
                errors |= {start + place: reason for place, reason in failed.items()}
            pieces.append(values)
        return ReadValues(pa.concat_arrays(pieces), errors)

    def _in_one_piece(self, payloads: pa.Array) -> pa.Array | None:
        return None if payloads.null_count else read_lines(payloads, self.arrow_type)

    def _row_by_row(self, payloads: pa.Array) -> ReadValues:
        values: list[Any] = [None] * len(payloads)
        errors: dict[int, str] = {}
        for place, payload in enumerate(payloads.to_pylist()):
            if payload is None:
                continue
            try:
                value = parsed(payload)
            except JsonMisfitError as misfit:
                errors[place] = str(misfit)
                continue
            try:
                values[place] = None if value is None else self._shape.fit(value)
            except JsonMisfitError as misfit:
                errors[place] = f"#{misfit}"
        read, refused = values_column(values, self.arrow_type)
        return ReadValues(read, {**errors, **refused})


def read_lines(payloads: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """What Arrow's reader makes of a line for each row; None where it may differ from reading row by row.

    Lines that begin with `{` and end with `}` cannot share an object, and each has at least one. Arrow takes NaN and
    nests without an end, and makes infinity of what a double does not hold.
    """
    try:
        lines = payloads.cast(pa.string())
        if not pc.all(pc.match_substring_regex(lines, r"(?-s)^\{[^\n\r]*\}$")).as_py():
            return None
        if pc.any(pc.match_substring_regex(lines, "NaN|Inf")).as_py():
            return None
        if pc.max(pc.count_substring_regex(lines, r"[\[{]")).as_py() > DEPTH_MAX:
            return None
        text = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")[0].as_py().encode()
        read = pj.read_json(
            io.BytesIO(text),
            pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
            pj.ParseOptions(explicit_schema=pa.schema(list(kind)), unexpected_field_behavior="ignore"),
        )
    except pa.ArrowException:
        return None
    if read.num_rows != len(payloads):
        return None
    columns = [column.combine_chunks() for column in read.select(kind.names).columns]
    if not all(map(_is_finite, columns)):
        return None
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _is_finite(column: pa.Array) -> bool:
    """Whether all doubles in a column are numbers."""
    if pa.types.is_struct(column.type):
        return all(map(_is_finite, column.flatten()))
    if pa.types.is_list(column.type):
        return _is_finite(column.flatten())
    return not pa.types.is_floating(column.type) or pc.all(pc.is_finite(column)).as_py() is not False


class _Shapes:
    """Column types of JSON schemas that refer to each other."""

    def __init__(self, contents: Any, documents: Mapping[str, Any]) -> None:
        own = contents.get("$id", "") if isinstance(contents, dict) else ""
        self._documents = {**documents, own: contents}

    def of(self, node: Any, root: Any, open_references: tuple[int, ...]) -> _Shape:
        """The shape of a schema in the document `root`; `open_references` are the schemas around it."""
        if not isinstance(node, dict):
            return _TEXT
        if "$ref" in node:
            target, document = self._target(str(node["$ref"]), root)
            if target is None or id(target) in open_references:
                return _TEXT
            return self.of(target, document, (*open_references, id(target)))
        branches = node.get("oneOf") or node.get("anyOf")
        if branches and "properties" not in node:
            real = [each for each in branches if not _is_null(each)]
            return self.of(real[0], root, open_references) if len(real) == 1 else _TEXT
        kind = _type_name(node)
        if kind == "object":
            return self._object(node, root, open_references)
        if kind == "array":
            items = node.get("items")
            if not isinstance(items, dict):
                return _TEXT
            inner = self.of(items, root, open_references)
            return _Shape(pa.list_(inner.type), fit_list(inner.fit), inner.is_plain, _within("element", inner))
        return _SCALARS.get(kind or "", _TEXT)

    def _object(self, node: Mapping[str, Any], root: Any, open_references: tuple[int, ...]) -> _Shape:
        properties = node.get("properties")
        if isinstance(properties, dict) and properties:
            shapes = {name: self.of(each, root, open_references) for name, each in properties.items()}
            fits = {name: each.fit for name, each in shapes.items()}
            kind = pa.struct([(name, each.type) for name, each in shapes.items()])
            meanings = {path: each for name, shape in shapes.items() for path, each in _within(name, shape).items()}
            return _Shape(kind, fit_struct(fits), all(each.is_plain for each in shapes.values()), meanings)
        values = node.get("additionalProperties")
        if isinstance(values, dict):
            inner = self.of(values, root, open_references)
            return _Shape(pa.map_(pa.string(), inner.type), fit_map(inner.fit), False, _within("value", inner))
        return _TEXT

    def _target(self, reference: str, root: Any) -> tuple[Any, Any]:
        """The schema of a `$ref`, and the document it is in; None if it is not there."""
        name, _, pointer = reference.partition("#")
        document = self._documents.get(name) if name else root
        found = document
        for step in pointer.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        return found, document


def _type_name(node: Mapping[str, Any]) -> str | None:
    """The only type besides null; that of the values of `enum` and `const`; None for several."""
    given = node.get("type")
    names = [given] if isinstance(given, str) else [each for each in given or () if each != "null"]
    if not names and "properties" in node:
        return "object"
    if not names:
        values = node.get("enum") or ([node["const"]] if "const" in node else [])
        names = ["string"] if values and all(isinstance(each, str | None) for each in values) else []
    return str(names[0]) if len(names) == 1 else None


def _is_null(node: Any) -> bool:
    return isinstance(node, dict) and (node.get("type") == "null" or ("const" in node and node["const"] is None))


def _within(step: str, shape: _Shape) -> Meanings:
    return {(step, *path): each for path, each in shape.meanings.items()}


_TEXT = _Shape(pa.string(), any_text_of, False, {(): frozenset({ANY_JSON})})
_SCALARS = {
    "number": _Shape(pa.float64(), double_of),
    "string": _Shape(pa.string(), text_of, True, {(): frozenset({"text"})}),
    "boolean": _Shape(pa.bool_(), boolean_of),
    "integer": _Shape(pa.int64(), long_of),
}


def fit_list(fit: Fit) -> Fit:
    """Lists of values of a type."""

    def fit_each(value: Any) -> Any:
        if not isinstance(value, list):
            raise wrong(value, "list")
        return [_inside(fit, each, place) for place, each in enumerate(value)]

    return fit_each


def fit_map(fit: Fit) -> Fit:
    """Maps from strings to values of a type."""

    def fit_each(value: Any) -> Any:
        if not isinstance(value, dict):
            raise wrong(value, "map")
        return {text_of(name): _inside(fit, each, name) for name, each in value.items()}

    return fit_each


def fit_struct(fits: Mapping[str, Fit]) -> Fit:
    """Objects, of which the members of the names are values of their types; others do not count."""

    def fit_members(value: Any) -> Any:
        if not isinstance(value, dict):
            raise wrong(value, "struct")
        return {name: _inside(fit, value.get(name), name) for name, fit in fits.items()}

    return fit_members


def _inside(fit: Callable[[Any], Any], value: Any, step: str | int) -> Any:
    if value is None:
        return None
    try:
        return fit(value)
    except JsonMisfitError as misfit:
        raise JsonMisfitError(f"/{step}{misfit}") from misfit
