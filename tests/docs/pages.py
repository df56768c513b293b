"""The pages of the documentation: their code blocks, code spans, links and headings. I/O: reads Markdown files.

The info string of a block decides how it is tested:

    ```python       run, all of a page in one interpreter, in order
    ```sh           run, all of a page in one shell, between the page's Python blocks
    ```sh serve     started in the background until the page ends: a command that stays up
    ```sh check     not run: its commands, flags and make targets are only checked; so are blocks without a language
    ```python check not run: only compiled
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN, SERVE, CHECK = "run", "serve", "check"

_FENCE = re.compile(r"^(?P<marks>```+) *(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=marks) *$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `first_line` is the line of the page, from 1, on which its text begins."""

    language: str
    handling: str
    first_line: int
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    """One Markdown file of the project; `path` is below its root."""

    path: Path
    text: str

    @property
    def blocks(self) -> list[Block]:
        """Its fenced blocks, in order."""
        return [_block(self.text, found) for found in _FENCE.finditer(self.text)]

    @property
    def prose(self) -> str:
        """Its text without fenced blocks."""
        return _FENCE.sub("", self.text)

    @property
    def spans(self) -> list[str]:
        """Its code spans, `like this`."""
        return _SPAN.findall(self.prose)

    @property
    def links(self) -> list[str]:
        """The targets of its links, as written."""
        return _LINK.findall(self.prose)

    @property
    def anchors(self) -> set[str]:
        """The anchors of its headings, as links write them behind `#`."""
        return {anchor_of(heading) for heading in _HEADING.findall(self.prose)}

    @property
    def is_run(self) -> bool:
        """True when one of its blocks is run."""
        return any(block.handling == RUN and block.language in ("python", "sh") for block in self.blocks)


def anchor_of(heading: str) -> str:
    """The anchor that GitHub gives a heading.

    >>> anchor_of("What works in `0.1`, and what is missing")
    'what-works-in-01-and-what-is-missing'
    """
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _block(text: str, found: re.Match[str]) -> Block:
    language, *words = found["info"].split() or [""]
    handling = next((word for word in words if word in (SERVE, CHECK)), RUN if language else CHECK)
    return Block(language, handling, text.count("\n", 0, found.start("text")) + 1, found["text"])


def read_page(path: str | Path) -> Page:
    """The page at this path below the project's root."""
    return Page(Path(path), (ROOT / path).read_text(encoding="utf-8"))


def pages() -> Iterator[Page]:
    """Every page at the project's root and below docs/."""
    for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]:
        yield read_page(path.relative_to(ROOT))
