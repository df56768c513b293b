"""Which files below a folder hold a word: their bytes as they lie there, and what their Parquet pages mean.

I/O: reads every file. A word in a compressed page is not among the bytes of its file, so rows are read, too.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def files_with(folder: Path, *words: str) -> list[str]:
    """The files that hold one of the words, by their names below the folder. A file that goes meanwhile is left out."""
    found = []
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue
        texts = [data, _rows(data) if path.suffix == ".parquet" else _unpacked(data)]
        if any(word.encode() in text for word in words for text in texts):
            found.append(str(path.relative_to(folder)))
    return found


def _rows(data: bytes) -> bytes:
    """All rows of a Parquet file as text; bytes in it are text where they can be."""
    rows = pq.read_table(pa.BufferReader(data)).to_pylist()
    return "\n".join(map(_shown, rows)).encode()


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(map(_shown, value.values()))
    if isinstance(value, (list, tuple)):
        return " ".join(map(_shown, value))
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _unpacked(data: bytes) -> bytes:
    try:
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else b""
    except (OSError, EOFError, zlib.error):
        return b""
