"""The commands that need Spark, where it may be missing: they say which extra brings it."""

from __future__ import annotations

import sys
from importlib import import_module

from stratalog.storage.extras import explained


def demo() -> int:
    """`strata-demo`; exit code 2 without its extra."""
    return _run("strata-demo", "stratalog.jobs.demo.__main__")


def typed_table() -> int:
    """`strata-typed-table`; exit code 2 without its extra."""
    return _run("strata-typed-table", "stratalog.jobs.typed_table")


def _run(name: str, module: str) -> int:
    try:
        main = import_module(module).main
    except ImportError as reason:
        print(explained(name, reason), file=sys.stderr)
        return 2
    found: int = main()
    return found
