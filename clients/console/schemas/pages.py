"""Pages about schemas, which `application` adds to its own. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SCHEMA_PAGES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "/schemas": ("schemas", "schemas.html"),
        "/schema": ("schema", "schema.html"),
        "/schema_users": ("schema_users", "schema_users.html"),
        "/schema_fits": ("schema_fits", "schema_fits.html"),
    }
)
"""Path -> the question of a page and its template."""
SCHEMA_MENU = (("/schemas", "Schemas"),)
SCHEMA_SECTIONS: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("/schema", "/schema_users", "/schema_fits"), "/schemas")
)
SCHEMA_FORMS = frozenset({"/schema_fits"})
"""Pages that show their form again, with the reason, when the question is refused."""
