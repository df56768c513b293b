"""What a broker's log says about connections that were closed, and about its own defects. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

CLOSED = r"connection of 127\.0\.0\.1:(\d+) closed(?: at API -?\d+)?: .+"
_CLOSED_IN_FILE = re.compile(f".*{CLOSED}")
TRACEBACK = "Traceback (most recent call last):"


def closed_ports(lines: Iterable[str]) -> Counter[int]:
    """How many lines tell of a connection's end, by the client's port."""
    return Counter(int(found[1]) for line in lines if (found := _CLOSED_IN_FILE.match(line)))


def defects(lines: Iterable[str]) -> Counter[str]:
    """The last lines of tracebacks: errors that no rule of a request foresaw.

    >>> defects(["Traceback (most recent call last):", "  File", "KeyError: 3", "next"])
    Counter({'KeyError: 3': 1})
    """
    found: Counter[str] = Counter()
    is_within = False
    for line in lines:
        if line.startswith(TRACEBACK):
            is_within = True
        elif is_within and line and not line[0].isspace():
            found[line.strip()] += 1
            is_within = False
    return found
