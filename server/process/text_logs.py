"""The text logs of brokers, as Kafka's: `state-change.log` has every leader and ISR change with its state, and
`request.log` each request, while the level of its logger asks for that.

I/O: appends to files in the log folder. A full file is renamed and a new one begun, so that their size is bounded; one
process writes into a folder.
"""

from __future__ import annotations

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

from stratalog.storage.log_lines import JsonLines

STATE_CHANGE_FILE, REQUEST_FILE = "state-change.log", "request.log"
STATE_CHANGE_LOGGER, REQUEST_LOGGER = "stratalog.state.change", "stratalog.request"
LOGS = ((STATE_CHANGE_LOGGER, STATE_CHANGE_FILE, logging.INFO), (REQUEST_LOGGER, REQUEST_FILE, None))
"""Logger, file and level of each; without a level the file is made for the first line."""
LINE = "[%(asctime)s] %(levelname)s %(message)s"
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


def open_text_logs(folder: Path, *, file_bytes_max: int = FILE_BYTES_MAX, as_json: bool = False) -> TextLogs:
    """Begin to write the text logs into a folder, which is made if need be. Close them with `close_text_logs`.

    as_json  each line is a JSON object (`stratalog.log.format`)
    """
    folder.mkdir(parents=True, exist_ok=True)
    logs: TextLogs = []
    for name, file, level in (
        (STATE_CHANGE_LOGGER, STATE_CHANGE_FILE, logging.INFO),
        (REQUEST_LOGGER, REQUEST_FILE, None),
    ):
        handler = LinesInOrder(
            folder / file, maxBytes=file_bytes_max, backupCount=FILES_KEPT, encoding="utf-8", delay=level is None
        )
        handler.setFormatter(JsonLines() if as_json else logging.Formatter(LINE))
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        if level is not None:
            logger.setLevel(level)
        logger.propagate = False
        logs.append((name, handler))
    return logs


def close_text_logs(logs: TextLogs) -> None:
    """Stop writing into them."""
    for name, handler in logs:
        logger = logging.getLogger(name)
        logger.removeHandler(handler)
        handler.close()
        logger.propagate = name == REQUEST_LOGGER and not logger.handlers
