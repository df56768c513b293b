"""Whether a new JSON schema may follow an earlier one: Confluent's rules. Pure.

A difference is compatible if every value that fitted the original fits the update. So a property may be added where no
other one was permitted, an object that permits any may lose one, bounds may widen, a union may grow. Names of
differences and their places are those of Confluent's servers with the policy STRICT.

Source: `io.confluent.kafka.schemaregistry.json.diff.SchemaDiff` and its neighbours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from stratalog.clients.schemas.compatibility.json_nodes import NodeKind, SchemaNode, SchemaNodes, followed
from stratalog.replication.client_pattern import client_pattern
from stratalog.storage.errors import InvalidRegularExpressionError

_COMPATIBLE = """ID_CHANGED DESCRIPTION_CHANGED TITLE_CHANGED DEFAULT_CHANGED SCHEMA_REMOVED TYPE_EXTENDED
    MAX_LENGTH_INCREASED MAX_LENGTH_REMOVED MIN_LENGTH_DECREASED MIN_LENGTH_REMOVED PATTERN_REMOVED
    MAXIMUM_INCREASED MAXIMUM_REMOVED MINIMUM_DECREASED MINIMUM_REMOVED
    EXCLUSIVE_MAXIMUM_INCREASED EXCLUSIVE_MAXIMUM_REMOVED EXCLUSIVE_MINIMUM_DECREASED EXCLUSIVE_MINIMUM_REMOVED
    MULTIPLE_OF_REDUCED MULTIPLE_OF_REMOVED
    REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED REQUIRED_ATTRIBUTE_REMOVED
    DEPENDENCY_ARRAY_NARROWED DEPENDENCY_ARRAY_REMOVED DEPENDENCY_SCHEMA_REMOVED
    MAX_PROPERTIES_INCREASED MAX_PROPERTIES_REMOVED MIN_PROPERTIES_DECREASED MIN_PROPERTIES_REMOVED
    ADDITIONAL_PROPERTIES_ADDED ADDITIONAL_PROPERTIES_EXTENDED
    UNEVALUATED_PROPERTIES_ADDED UNEVALUATED_PROPERTIES_EXTENDED
    PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL
    OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL
    PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    MAX_ITEMS_INCREASED MAX_ITEMS_REMOVED MIN_ITEMS_DECREASED MIN_ITEMS_REMOVED
    MAX_CONTAINS_INCREASED MAX_CONTAINS_REMOVED MIN_CONTAINS_DECREASED MIN_CONTAINS_REMOVED UNIQUE_ITEMS_REMOVED
    ADDITIONAL_ITEMS_ADDED ADDITIONAL_ITEMS_EXTENDED UNEVALUATED_ITEMS_ADDED UNEVALUATED_ITEMS_EXTENDED
    ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL ITEM_ADDED_TO_CLOSED_CONTENT_MODEL
    ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL
    ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    ENUM_ARRAY_EXTENDED COMBINED_TYPE_EXTENDED PRODUCT_TYPE_NARROWED SUM_TYPE_EXTENDED NOT_TYPE_NARROWED"""
COMPATIBLE = frozenset(_COMPATIBLE.split())
"""The differences after which every earlier value still fits."""
_ADVICE = {
    "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": "earlier values may have it in another form; begin with "
    '"additionalProperties": false to add properties later',
    "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": "earlier values may lack it; make it optional",
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": "earlier values lack it; make it optional or give it a default",
    "REQUIRED_ATTRIBUTE_ADDED": "earlier values may lack it; leave it optional or give it a default",
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": "earlier values have it; keep it",
}


class Difference(NamedTuple):
    """What changed at a path below the pair of schemas that were compared."""

    kind: str
    path: tuple[str, ...] = ()

    @property
    def is_compatible(self) -> bool:
        return self.kind in COMPATIBLE

    def below(self, *steps: str) -> Difference:
        return Difference(self.kind, (*steps, *self.path))

    def __str__(self) -> str:
        advice = _ADVICE.get(self.kind)
        return f"#/{'/'.join(self.path)}: {self.kind}" + (f": {advice}" if advice else "")


Differences = list[Difference]
_Pair = tuple[SchemaNode, SchemaNode]
_Compare = Callable[[SchemaNode | None, SchemaNode | None], Differences]


def incompatibilities(original: SchemaNodes, update: SchemaNodes) -> list[str]:
    """Why `update` does not accept what `original` did, as `#/properties/id: TYPE_CHANGED`; empty if it does."""
    return [str(each) for each in differences(original, update) if not each.is_compatible]


def differences(original: SchemaNodes, update: SchemaNodes) -> Differences:
    """All differences, compatible ones too. InvalidSchemaError for a reference that leads nowhere.

    A pair of schemas that is met again within itself counts as compatible. Where it proved not to be, everything is
    compared again with that known, until nothing more is found.
    """
    incompatible: dict[_Pair, Differences] = {}
    while True:
        comparison = _Comparison(incompatible)
        found = comparison.compare(original.root, update.root)
        now = comparison.incompatible()
        if not comparison.assumed or now.keys() == incompatible.keys():
            return found
        incompatible = now


class _Comparison:
    """One pass over two schemas. Each pair of nodes is compared once."""

    def __init__(self, incompatible: Mapping[_Pair, Differences]) -> None:
        self._incompatible = incompatible
        self._known: dict[_Pair, Differences] = {}
        self._open: set[_Pair] = set()
        self.assumed = False
        """Whether a pair was assumed to be compatible within itself."""

    def incompatible(self) -> dict[_Pair, Differences]:
        return {pair: found for pair, found in self._known.items() if not _are_compatible(found)}

    def compare(self, original: SchemaNode | None, update: SchemaNode | None) -> Differences:
        """The differences of two schemas; None is a schema that is not there."""
        if original is None or update is None:
            if original is update:
                return []
            return [Difference("SCHEMA_ADDED" if original is None else "SCHEMA_REMOVED")]
        pair = followed(original), followed(update)
        if pair in self._known:
            return self._known[pair]
        if pair in self._open:
            if pair in self._incompatible:
                return self._incompatible[pair]
            self.assumed = True
            return []
        self._open.add(pair)
        try:
            self._known[pair] = found = self._nodes(*pair)
        finally:
            self._open.discard(pair)
        return found

    def _nodes(self, original: SchemaNode, update: SchemaNode) -> Differences:
        if (original.kind == NodeKind.COMBINED) != (update.kind == NodeKind.COMBINED):
            found = self._with_one_combined(original, update)
            if found is not None:
                return found
        if original.kind != update.kind:
            if original.kind == NodeKind.FALSE or update.accepts_all:
                return []
            are_bytes = original.whole.get("connect.type") == update.whole.get("connect.type") == "bytes"
            return [] if are_bytes else [Difference("TYPE_CHANGED")]
        found = list(_labels(original, update))
        if original.kind == NodeKind.COMBINED:
            return [*found, *self._combined(original, update)]
        if original.kind == NodeKind.NOT:
            return [*found, self._not(original, update)]
        if original.kind in _RULES:
            found += _RULES[original.kind](original, update, self.compare)
        return found

    def _with_one_combined(self, original: SchemaNode, update: SchemaNode) -> Differences | None:
        """What a schema and a combination have in common; None if it is nothing."""
        combined = update if update.kind == NodeKind.COMBINED else original
        inside = combined.parts["subschemas"]
        is_all = combined.parts["criterion"] == "allOf"
        if len(inside) > 1 and is_all == (combined is update):
            return None
        for each in inside:
            found = self.compare(original, each) if combined is update else self.compare(each, update)
            if _are_compatible(found):
                if len(inside) == 1:
                    return found
                return [*found, Difference("SUM_TYPE_EXTENDED" if combined is update else "PRODUCT_TYPE_NARROWED")]
        return None

    def _combined(self, original: SchemaNode, update: SchemaNode) -> Differences:
        before = list({each.key: each for each in original.parts["subschemas"]}.values())
        after = list({each.key: each for each in update.parts["subschemas"]}.values())
        criteria = original.parts["criterion"], update.parts["criterion"]
        found = _criteria(criteria, (len(original.parts["subschemas"]), len(update.parts["subschemas"])))
        if Difference("COMBINED_TYPE_CHANGED") in found:
            return found
        if len(before) < len(after):
            found.append(Difference("PRODUCT_TYPE_EXTENDED" if criteria[1] == "allOf" else "SUM_TYPE_EXTENDED"))
        elif len(before) > len(after):
            found.append(Difference("PRODUCT_TYPE_NARROWED" if criteria[0] == "allOf" else "SUM_TYPE_NARROWED"))
        edges = [[(there, self.compare(here, each)) for there, each in enumerate(after)] for here in before]
        partners = _matched([[there for there, each in row if _are_compatible(each)] for row in edges])
        for there, here in sorted(partners.items(), key=lambda each: each[1]):
            found += [each.below(criteria[0], str(here)) for each in edges[here][there][1]]
        if len(partners) < min(len(before), len(after)):
            found.append(Difference("COMBINED_TYPE_SUBSCHEMAS_CHANGED"))
        return found

    def _not(self, original: SchemaNode, update: SchemaNode) -> Difference:
        """What must not match is compared the other way round."""
        found = self.compare(update.parts["not"], original.parts["not"])
        return Difference("NOT_TYPE_NARROWED" if _are_compatible(found) else "NOT_TYPE_EXTENDED", ("not",))


def _are_compatible(found: Iterable[Difference]) -> bool:
    return all(each.is_compatible for each in found)


def _labels(original: SchemaNode, update: SchemaNode) -> Iterator[Difference]:
    for keyword, kind in (
        ("$id", "ID_CHANGED"),
        ("title", "TITLE_CHANGED"),
        ("description", "DESCRIPTION_CHANGED"),
        ("default", "DEFAULT_CHANGED"),
    ):
        if original.whole.get(keyword) != update.whole.get(keyword):
            yield Difference(kind)


def _criteria(criteria: tuple[str, str], sizes: tuple[int, int]) -> Differences:
    before, after = criteria
    if before == after:
        return []
    is_wider = (
        after == "anyOf"
        or sizes == (1, 1)
        or (sizes[0] == 1 and after == "oneOf")
        or (sizes[1] == 1 and before == "allOf")
    )
    return [Difference("COMBINED_TYPE_EXTENDED" if is_wider else "COMBINED_TYPE_CHANGED")]


def _matched(edges: Sequence[Sequence[int]]) -> dict[int, int]:
    """A largest matching: right vertex -> left vertex. `edges` are the right ones of each left one."""
    partners: dict[int, int] = {}

    def place(here: int, tried: set[int]) -> bool:
        for there in edges[here]:
            if there not in tried:
                tried.add(there)
                if there not in partners or place(partners[there], tried):
                    partners[there] = here
                    return True
        return False

    for here in range(len(edges)):
        place(here, set())
    return partners


# -- strings, numbers, values ------------------------------------------------------------------------------


def _bound(name: str, keyword: str, original: SchemaNode, update: SchemaNode) -> Iterator[Difference]:
    """`<name>_ADDED`, `_REMOVED`, `_INCREASED`, `_DECREASED` of a number."""
    before, after = (_number(each.own.get(keyword)) for each in (original, update))
    if before == after:
        return
    if before is None:
        change = "ADDED"
    elif after is None:
        change = "REMOVED"
    else:
        change = "INCREASED" if before < after else "DECREASED"
    yield Difference(f"{name}_{change}", (keyword,))


def _number(value: Any) -> Decimal | None:
    """None for what is no number, as the `exclusiveMaximum` of draft 4."""
    return Decimal(str(value)) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _string(original: SchemaNode, update: SchemaNode, compare: _Compare) -> Differences:
    del compare
    found = [*_bound("MAX_LENGTH", "maxLength", original, update), *_bound("MIN_LENGTH", "minLength", original, update)]
    before, after = original.own.get("pattern"), update.own.get("pattern")
    if before != after:
        kind = "PATTERN_ADDED" if before is None else "PATTERN_REMOVED" if after is None else "PATTERN_CHANGED"
        found.append(Difference(kind, ("pattern",)))
    return found


def _numbers(original: SchemaNode, update: SchemaNode, compare: _Compare) -> Differences:
    del compare
    found = [
        *_bound("MAXIMUM", "maximum", original, update),
        *_bound("MINIMUM", "minimum", original, update),
        *_bound("EXCLUSIVE_MAXIMUM", "exclusiveMaximum", original, update),
        *_bound("EXCLUSIVE_MINIMUM", "exclusiveMinimum", original, update),
    ]
    before, after = (_number(each.own.get("multipleOf")) for each in (original, update))
    if before != after:
        found.append(Difference(_multiple(before, after), ("multipleOf",)))
    is_integer = [each.own["type"] == "integer" for each in (original, update)]
    if is_integer[0] != is_integer[1]:
        found.append(Difference("TYPE_EXTENDED" if is_integer[0] else "TYPE_NARROWED"))
    return found


def _multiple(before: Decimal | None, after: Decimal | None) -> str:
    if before is None:
        return "MULTIPLE_OF_ADDED"
    if after is None:
        return "MULTIPLE_OF_REMOVED"
    if before and after % before == 0:
        return "MULTIPLE_OF_EXPANDED"
    return "MULTIPLE_OF_REDUCED" if after and before % after == 0 else "MULTIPLE_OF_CHANGED"


def _enum(original: SchemaNode, update: SchemaNode, compare: _Compare) -> Differences:
    del compare
    before, after = ({json.dumps(value, sort_keys=True) for value in each.own["enum"]} for each in (original, update))
    if before == after:
        return []
    kind = "EXTENDED" if before < after else "NARROWED" if before > after else "CHANGED"
    return [Difference(f"ENUM_ARRAY_{kind}", ("enum",))]


def _const(original: SchemaNode, update: SchemaNode, compare: _Compare) -> Differences:
    del compare
    before, after = (json.dumps(each.own["const"], sort_keys=True) for each in (original, update))
    return [] if before == after else [Difference("ENUM_ARRAY_CHANGED", ("const",))]


# -- objects -----------------------------------------------------------------------------------------------


def _object(original: SchemaNode, update: SchemaNode, compare: _Compare) -> Differences:
    return [
        *_required(original, update),
        *_properties(original, update, compare),
        *_dependencies(original, update, compare),
        *_below(_additional("PROPERTIES", original, update, compare), "additionalProperties"),
        *_below(_unevaluated("PROPERTIES", original, update, compare), "unevaluatedProperties"),
        *_bound("MAX_PROPERTIES", "maxProperties", original, update),
        *_bound("MIN_PROPERTIES", "minProperties", original, update),
    ]


def _below(found: Iterable[Difference], *steps: str) -> Differences:
    return [each.below(*steps) for each in found]


def _required(original: SchemaNode, update: SchemaNode) -> Iterator[Difference]:
    for name in original.parts["properties"]:
        if name in update.parts["properties"]:
            before, after = (name in each.parts["required"] for each in (original, update))
            if before and not after:
                yield Difference("REQUIRED_ATTRIBUTE_REMOVED", ("required", name))
            elif after and not before:
                has_default = "default" in update.parts["properties"][name].whole
                kind = "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED" if has_default else "REQUIRED_ATTRIBUTE_ADDED"
                yield Difference(kind, ("required", name))


def _properties(original: SchemaNode, update: SchemaNode, compare: _Compare) -> Iterator[Difference]:
    before, after = original.parts["properties"], update.parts["properties"]
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            found = _removed("PROPERTY", before[name], update, name, compare)
        elif name not in before:
            found = _property_added(name, original, update, compare)
        else:
            found = compare(before[name], after[name])
        yield from _below(found, "properties", name)


def _is_open(node: SchemaNode) -> bool:
    """Whether values may hold more than is named, in any form."""
    unevaluated = node.parts["unevaluated"]
    return (
        node.parts["permits_additional"]
        and node.parts["additional"] is None
        and not node.parts.get("patterns")
        and (unevaluated is None or unevaluated.accepts_all)
    )


def _covers(pattern: str, name: str) -> bool:
    """An expression that RE2 does not know covers nothing: the verdict is then that it is not compatible."""
    try:
        return client_pattern(pattern, "pattern").search(name) is not None
    except InvalidRegularExpressionError:
        return False


def _schema_of_others(node: SchemaNode, name: str) -> SchemaNode | None:
    """The schema for a property or item that is not named."""
    for pattern, schema in node.parts.get("patterns", {}).items():
        if _covers(pattern, name):
            return schema if isinstance(schema, SchemaNode) else None
    additional, unevaluated = node.parts["additional"], node.parts["unevaluated"]
    if isinstance(additional, SchemaNode):
        return additional
    is_absent = node.parts["permits_additional"]
    if is_absent and isinstance(unevaluated, SchemaNode) and unevaluated.kind != NodeKind.FALSE:
        return None if unevaluated.accepts_all else unevaluated
    return None


def _removed(noun: str, schema: SchemaNode, update: SchemaNode, name: str, compare: _Compare) -> Differences:
    if _is_open(update):
        return [Difference(f"{noun}_REMOVED_FROM_OPEN_CONTENT_MODEL")]
    others = _schema_of_others(update, name)
    if others is not None:
        found = compare(schema, others)
        word = "IS" if _are_compatible(found) else "NOT"
        return [*found, Difference(f"{noun}_REMOVED_{word}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")]
    kind = "WITH_FALSE_REMOVED" if schema.kind == NodeKind.FALSE else "REMOVED"
    return [Difference(f"{noun}_{kind}_FROM_CLOSED_CONTENT_MODEL")]


def _added_beside(noun: str, schema: SchemaNode, others: SchemaNode, compare: _Compare) -> Differences:
    found = compare(others, schema)
    word = "IS" if _are_compatible(found) else "NOT"
    return [*found, Difference(f"{noun}_ADDED_{word}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")]


def _property_added(name: str, original: SchemaNode, update: SchemaNode, compare: _Compare) -> Differences:
    schema = update.parts["properties"][name]
    is_open = _is_open(original)
    if is_open and schema.accepts_all:
        return [Difference("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL")]
    others = None if is_open else _schema_of_others(original, name)
    found = [] if others is None else _added_beside("PROPERTY", schema, others, compare)
    if name not in update.parts["required"]:
        word = "OPTIONAL_PROPERTY"
    else:
        word = "REQUIRED_PROPERTY_WITH_DEFAULT" if "default" in schema.whole else "REQUIRED_PROPERTY"
    return [*found, Difference(f"{word}_ADDED_TO_{'OPEN' if is_open else 'UNOPEN'}_CONTENT_MODEL")]


def _dependencies(original: SchemaNode, update: SchemaNode, compare: _Compare) -> Iterator[Difference]:
    before, after = (each.parts["property_dependencies"] for each in (original, update))
    for name in dict.fromkeys([*before, *after]):
        if name not in after or name not in before:
            kind = "REMOVED" if name in before else "ADDED"
        elif before[name] == after[name]:
            continue
        else:
            kind = "EXTENDED" if before[name] < after[name] else "NARROWED" if before[name] > after[name] else "CHANGED"
        yield Difference(f"DEPENDENCY_ARRAY_{kind}", ("dependencies", name))
    before, after = (each.parts["schema_dependencies"] for each in (original, update))
    for name in dict.fromkeys([*before, *after]):
        if name in before and name in after:
            yield from _below(compare(before[name], after[name]), "dependencies", name)
        else:
            kind = "REMOVED" if name in before else "ADDED"
            yield Difference(f"DEPENDENCY_SCHEMA_{kind}", ("dependencies", name))


def _additional(noun: str, original: SchemaNode, update: SchemaNode, compare: _Compare) -> Differences:
    before, after = original.parts["additional"], update.parts["additional"]
    permits = original.parts["permits_additional"], update.parts["permits_additional"]
    if permits[0] != permits[1]:
        return [Difference(f"ADDITIONAL_{noun}_{'ADDED' if permits[1] else 'REMOVED'}")]
    if (before is None) != (after is None):
        return [Difference(f"ADDITIONAL_{noun}_{'NARROWED' if before is None else 'EXTENDED'}")]
    return compare(before, after)


def _unevaluated(noun: str, original: SchemaNode, update: SchemaNode, compare: _Compare) -> Differences:
    """A schema that is not there permits everything."""
    before, after = original.parts["unevaluated"], update.parts["unevaluated"]
    if before is None and after is None:
        return []
    permits = [each is None or each.kind != NodeKind.FALSE for each in (before, after)]
    if permits[0] != permits[1]:
        return [Difference(f"UNEVALUATED_{noun}_{'ADDED' if permits[1] else 'REMOVED'}")]
    if before is None or after is None:
        return [Difference(f"UNEVALUATED_{noun}_{'NARROWED' if before is None else 'EXTENDED'}")]
    if before.accepts_all != after.accepts_all:
        return [Difference(f"UNEVALUATED_{noun}_{'NARROWED' if before.accepts_all else 'EXTENDED'}")]
    return compare(before, after)


# -- arrays ------------------------------------------------------------------------------------------------


def _array(original: SchemaNode, update: SchemaNode, compare: _Compare) -> Differences:
    found = [
        *_below(compare(original.parts["items"], update.parts["items"]), "items"),
        *_items(original, update, compare),
        *_below(_additional("ITEMS", original, update, compare), "additionalItems"),
        *_below(_unevaluated("ITEMS", original, update, compare), "unevaluatedItems"),
        *_bound("MAX_ITEMS", "maxItems", original, update),
        *_bound("MIN_ITEMS", "minItems", original, update),
    ]
    unique = [bool(each.own.get("uniqueItems")) for each in (original, update)]
    if unique[0] != unique[1]:
        found.append(Difference("UNIQUE_ITEMS_REMOVED" if unique[0] else "UNIQUE_ITEMS_ADDED", ("uniqueItems",)))
    found += _bound("MAX_CONTAINS", "maxContains", original, update)
    found += _bound("MIN_CONTAINS", "minContains", original, update)
    return found


def _items(original: SchemaNode, update: SchemaNode, compare: _Compare) -> Iterator[Difference]:
    """Items with a schema each, by their positions."""
    before, after = original.parts["prefix"], update.parts["prefix"]
    for place in range(max(len(before), len(after))):
        if place >= len(after):
            found = _removed("ITEM", before[place], update, "", compare)
        elif place >= len(before):
            found = _item_added(after[place], original, compare)
        else:
            found = compare(before[place], after[place])
        yield from _below(found, f"items/{place}")


def _item_added(schema: SchemaNode, original: SchemaNode, compare: _Compare) -> Differences:
    if _is_open(original):
        word = "ITEM_WITH_EMPTY_SCHEMA" if schema.accepts_all else "ITEM"
        return [Difference(f"{word}_ADDED_TO_OPEN_CONTENT_MODEL")]
    others = _schema_of_others(original, "")
    if others is not None:
        return _added_beside("ITEM", schema, others, compare)
    return [Difference("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL")]


_RULES: dict[NodeKind, Callable[[SchemaNode, SchemaNode, _Compare], Differences]] = {
    NodeKind.STRING: _string,
    NodeKind.NUMBER: _numbers,
    NodeKind.ENUM: _enum,
    NodeKind.CONST: _const,
    NodeKind.OBJECT: _object,
    NodeKind.ARRAY: _array,
}
