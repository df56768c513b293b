"""Regular expressions of JSON schemas: the package jsonschema with RE2 for Python's `re`. I/O: loads its modules.

Who writes a schema, or a value, must not stop who validates: see `client_pattern`. RE2 is nearer to the expressions of
JSON Schema (ECMA 262) than `re` is: `$` is the end of the text, `\\d` an ASCII digit. It has no look-around and no
back-references; a schema with one of them validates nothing.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec, module_from_spec
from types import ModuleType, SimpleNamespace
from typing import Any

from stratalog.replication.client_pattern import client_pattern

_UTILS = "jsonschema._utils"


def _search(pattern: str, text: str) -> Any:
    return client_pattern(pattern, "the schema's pattern").search(text)


@cache
def bounded(validator_class: Any) -> Any:
    """The validator of the package jsonschema with all of its keywords on RE2."""
    from jsonschema.validators import extend

    keywords = {name: getattr(_on_re2(each.__module__), each.__name__) for name, each in _keywords(validator_class)}
    return extend(validator_class, keywords)


def _keywords(validator_class: Any) -> list[tuple[str, Any]]:
    own = validator_class.VALIDATORS.items()
    return [(name, each) for name, each in own if each.__module__.startswith("jsonschema.")]


@cache
def _on_re2(module_name: str) -> ModuleType:
    """A second copy of a module of the package, for us alone: its `re` is RE2, in what it imports, too."""
    spec = find_spec(module_name)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    if hasattr(module, "re"):
        vars(module)["re"] = SimpleNamespace(search=_search)
    if module_name != _UTILS:
        for name, each in list(vars(module).items()):
            if getattr(each, "__module__", "") == _UTILS and hasattr(_on_re2(_UTILS), name):
                setattr(module, name, getattr(_on_re2(_UTILS), name))
    return module
