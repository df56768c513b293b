"""`make completions`: the table of all tools' flags anew. I/O: imports every tool, writes one file."""

from __future__ import annotations

from importlib import import_module

from stratalog.jobs.completion.table import TABLE, CompletedTool, to_json
from stratalog.jobs.strata import TOOLS, modules


def table() -> str:
    """The content of the file, of the tools as they are."""
    purposes = {name: purpose for tools in TOOLS.values() for name, (_, purpose) in tools.items()}
    tools = [CompletedTool.of(import_module(module).main, purposes[name]) for name, module in modules().items()]
    return to_json(tools)


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
