"""Pages as HTML: templates, and how numbers, sizes and times are written in them. I/O: reads templates.

Everything that is put into a page is escaped. No page has a script or a style of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from stratalog.clients.console.over_time.chart import line_chart
from stratalog.clients.console.shown_text import visible
from stratalog.clients.console.stored.pages import timeline_bars
from stratalog.clients.console.times import duration, iso_time

FOLDER = Path(__file__).parent
THIN_SPACE = "\N{NARROW NO-BREAK SPACE}"
BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def number(value: float | None) -> str:
    """A count with its digits in groups; a dash for one that is not known.

    >>> number(1234567).split(THIN_SPACE), number(-1)
    (['1', '234', '567'], '–')
    """
    if value is None or value < 0:
        return "–"
    if value != int(value):
        return f"{value:,.2f}".replace(",", THIN_SPACE)
    return f"{int(value):,}".replace(",", THIN_SPACE)


def size(value: int | None) -> str:
    """Bytes in a unit of three digits at most; a dash for a size that is not known.

    >>> size(3_500_000), size(12)
    ('3.3\\u202fMiB', '12\\u202fB')
    """
    if value is None or value < 0:
        return "–"
    amount, unit = float(value), 0
    while amount >= 1_000 and unit < len(BYTE_UNITS) - 1:
        amount, unit = amount / 1_024, unit + 1
    return f"{amount:.0f}{THIN_SPACE}{BYTE_UNITS[unit]}" if unit == 0 else f"{amount:.1f}{THIN_SPACE}{BYTE_UNITS[unit]}"


def seconds(value: float | None) -> str:
    """A lag in seconds, as a length of time; a dash where it is not known."""
    return "–" if value is None else "0 s" if value == 0 else duration(value * 1_000)


def moment(ms: int) -> Markup:
    """A time as an element, UTC, which the page's script writes in the reader's zone."""
    text = iso_time(ms)
    if not text:
        return Markup("–")
    return Markup('<time datetime="{0}">{1} UTC</time>').format(text, text.replace("T", " ").rstrip("Z"))


def address(path: str, **parameters: object) -> str:
    """A path with parameters; those that are None or empty are left out.

    >>> address("/topic", topic="a b", first=None)
    '/topic?topic=a+b'
    """
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


class Pages:
    """Makes pages of templates."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "number": number,
            "size": size,
            "seconds": seconds,
            "moment": moment,
            "duration": duration,
            "visible": lambda text: visible(str(text)),
            "points": lambda rows, name: [(each.at_ms, getattr(each, name)) for each in rows],
        }
        self._environment.globals |= {"address": address, "timeline_bars": timeline_bars, "line_chart": line_chart}

    def page(self, template: str, values: Mapping[str, Any]) -> str:
        """The HTML of a template, `topics.html`."""
        return self._environment.get_template(template).render(values)
