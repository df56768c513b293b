"""The text logs of brokers: what stands in their lines."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from stratalog.server.process.text_logs import (
    REQUEST_FILE,
    REQUEST_LOGGER,
    STATE_CHANGE_FILE,
    STATE_CHANGE_LOGGER,
    close_text_logs,
    open_text_logs,
)


def test_a_line_is_never_older_than_the_one_above_it(tmp_path: Path) -> None:
    logs = open_text_logs(tmp_path)
    handler = dict(logs)[STATE_CHANGE_LOGGER]
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


def test_lines_may_be_json_and_the_request_log_is_a_file_of_its_own_once_asked_for(tmp_path: Path) -> None:
    logs, requests = open_text_logs(tmp_path, as_json=True), logging.getLogger(REQUEST_LOGGER)
    try:
        requests.debug("not asked for")
        assert not (tmp_path / REQUEST_FILE).exists()
        logging.getLogger(STATE_CHANGE_LOGGER).info("broker %d leads", 1)
        requests.setLevel(logging.DEBUG)
        described = {"requestHeader": {"requestApiKeyName": "FETCH"}, "principal": "User:alice"}
        requests.debug("%s:%s", "Completed request", json.dumps(described), extra={"fields": described})
    finally:
        close_text_logs(logs)
        requests.setLevel(logging.NOTSET)
    change = json.loads((tmp_path / STATE_CHANGE_FILE).read_text())
    assert (change["level"], change["logger"], change["message"]) == ("INFO", STATE_CHANGE_LOGGER, "broker 1 leads")
    request = json.loads((tmp_path / REQUEST_FILE).read_text())
    assert (request["message"], request["fields"]) == ("Completed request", described)
