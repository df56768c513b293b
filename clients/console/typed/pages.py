"""Pages about typed tables, which `application` adds to its own. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

TYPED_PAGES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "/typed_tables": ("typed_tables", "typed_tables.html"),
        "/typed_table": ("typed_table", "typed_table.html"),
        "/dead_letters": ("dead_letters", "dead_letters.html"),
    }
)
"""Path -> the question of a page and its template."""
TYPED_MENU = (("/typed_tables", "Tables"),)
TYPED_SECTIONS: Mapping[str, str] = MappingProxyType(dict.fromkeys(("/typed_table", "/dead_letters"), "/typed_tables"))
