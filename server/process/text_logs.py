"""The text logs of brokers: `state-change.log` has every leader and ISR change with its state, as Kafka's.

I/O: appends to files in the log folder. A full file is renamed and a new one begun, so that their size is bounded; one
process writes into a folder.
"""

from __future__ import annotations

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

STATE_CHANGE_FILE = "state-change.log"
FILE_BYTES_MAX = 10 << 20
FILES_KEPT = 10
"""Number of older files, `.1` the newest of them: 110 MiB in all, some 700,000 state changes."""

TextLogs = list[tuple[str, logging.Handler]]
"""Logger name and handler of each log that is open."""


class LinesInOrder(RotatingFileHandler):
    """No line has an earlier time than the line above it, on which tools that merge files by time rely: threads read
    the clock and then wait for each other to write, now and then in another order."""

    _newest = (0.0, 0.0)

    def emit(self, record: logging.LogRecord) -> None:
        if record.created < self._newest[0]:
            record.created, record.msecs = self._newest
        self._newest = (record.created, record.msecs)
        super().emit(record)


def open_text_logs(folder: Path, *, file_bytes_max: int = FILE_BYTES_MAX) -> TextLogs:
    """Begin to write the text logs into a folder, which is made if need be. Close them with `close_text_logs`."""
    folder.mkdir(parents=True, exist_ok=True)
    name = "stratalog.state.change"
    handler = LinesInOrder(
        folder / STATE_CHANGE_FILE, maxBytes=file_bytes_max, backupCount=FILES_KEPT, encoding="utf-8"
    )
    handler.setFormatter(logging.Formatter("[%(asctime)s] %(levelname)s %(message)s"))
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return [(name, handler)]


def close_text_logs(logs: TextLogs) -> None:
    """Stop writing into them."""
    for name, handler in logs:
        logging.getLogger(name).removeHandler(handler)
        handler.close()
