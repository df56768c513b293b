"""Descriptions as HTML tables, for notebooks (`_repr_html_`). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

ROWS_MAX = 100
"""Rows of a table that are shown; the rest is counted."""
_CELL = "padding:2px 10px;text-align:"
_NONE = "–"


def html_table(caption: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a caption. Every text is escaped; a sequence is shown with commas, None as a dash.

    >>> html_table("t", ["isr"], [[(1, 2)]]).count("1, 2")
    1
    """
    shown = list(rows)
    left_out = len(shown) - ROWS_MAX
    heads = "".join(f'<th style="{_CELL}left">{escape(name)}</th>' for name in header)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in shown[:ROWS_MAX])
    if left_out > 0:
        body += f'<tr><td style="{_CELL}left" colspan="{len(header)}">and {left_out} more</td></tr>'
    return (
        f'<table><caption style="text-align:left"><b>{escape(caption)}</b></caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    )


def html_fields(fields: Mapping[str, object]) -> str:
    """Names and values as a line above a table."""
    return f"<div>{' · '.join(f'{escape(name)}: {escape(_text(value))}' for name, value in fields.items())}</div>"


def _cell(value: object) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f'<td style="{_CELL}{"right" if is_number else "left"}">{escape(_text(value))}</td>'


def _text(value: object) -> str:
    if value is None or value == "":
        return _NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or _NONE
    return str(value)
