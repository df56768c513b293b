"""A scenario file: comments explain, commands act, and the output is below `----`. Pure.

Blocks are separated by blank lines; a block's output ends with the block. Blocks without output have no `----`.
"""

from __future__ import annotations

from collections.abc import Callable

SEPARATOR = "----"


def played(text: str, run: Callable[[str], list[str]]) -> str:
    """The scenario with the output that its commands give now; equal to `text` when nothing changed."""
    blocks = text.strip("\n").split("\n\n")
    return "\n\n".join(_played_block(block, run) for block in blocks) + "\n"


def _played_block(block: str, run: Callable[[str], list[str]]) -> str:
    said = block.split("\n")
    script = said[: said.index(SEPARATOR)] if SEPARATOR in said else said
    output: list[str] = []
    for line in script:
        if line and not line.startswith("#"):
            output += run(line)
    return "\n".join([*script, SEPARATOR, *output] if output else script)
