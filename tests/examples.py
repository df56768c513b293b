"""How many examples a property draws."""

from __future__ import annotations

import hypothesis


def examples(count: int) -> int:
    """`count` in `make test-long`, which draws new ones; a quarter in `make test`, which draws the same each time.

    >>> examples(100) in (25, 100)
    True
    """
    return count // 4 if hypothesis.settings.default.derandomize else count
