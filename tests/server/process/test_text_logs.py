"""The text logs of brokers: what stands in their lines."""

from __future__ import annotations

import logging
from pathlib import Path

from stratalog.server.process.text_logs import STATE_CHANGE_FILE, close_text_logs, open_text_logs


def test_a_line_is_never_older_than_the_one_above_it(tmp_path: Path) -> None:
    logs = open_text_logs(tmp_path)
    ((_, handler),) = logs
    for said, at_s in (("a", 100.016), ("b", 100.015), ("c", 101.001), ("d", 100.999), ("e", 101.5)):
        record = logging.makeLogRecord({"msg": said, "levelno": logging.INFO, "levelname": "INFO"})
        record.created, record.msecs = at_s, at_s * 1000 % 1000
        handler.handle(record)
    close_text_logs(logs)
    lines = (tmp_path / STATE_CHANGE_FILE).read_text().splitlines()
    assert [(line[18:24], line[-1]) for line in lines] == [
        ("40,016", "a"),
        ("40,016", "b"),
        ("41,001", "c"),
        ("41,001", "d"),
        ("41,500", "e"),
    ]
