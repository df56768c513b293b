"""Pages of what happened over time. Pure. `application` adds them to its own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

OVER_TIME_PAGES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"/rates": ("rates", "rates.html"), "/lag_over_time": ("lag_over_time", "lag_over_time.html")}
)
"""Path -> the question of a page and its template."""
OVER_TIME_MENU = (("/rates", "Rates"),)
OVER_TIME_SECTIONS: Mapping[str, str] = MappingProxyType({"/lag_over_time": "/groups"})
