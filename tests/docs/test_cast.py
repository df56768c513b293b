"""The recorded first thirty seconds: a valid cast, whose commands are those of today."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from tests.docs.commands import commands, faults
from tests.docs.pages import ROOT

LINES = (ROOT / "docs" / "start.cast").read_text(encoding="utf-8").splitlines()
BYTES_MAX = 40_000


def test_the_cast_is_of_version_2_and_short() -> None:
    header, *events = map(json.loads, LINES)
    assert (header["version"], header["width"] > 0, header["height"] > 0) == (2, True, True)
    times = [at for at, _, _ in events]
    assert times == sorted(times)
    assert times[-1] <= 30
    assert {kind for _, kind, _ in events} == {"o"}
    assert sum(map(len, LINES)) <= BYTES_MAX


def typed() -> list[str]:
    shown = "".join(text for _, _, text in map(json.loads, LINES[1:]))
    plain = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]|\x1b\][^\x07]*\x07", "", shown)
    unwrapped = plain.replace(" \r", "").replace("\r\n", "\n").replace("\r", "")
    return [line.removeprefix("$ ").strip() for line in unwrapped.splitlines() if line.startswith("$ ")]


def test_five_commands_install_run_produce_consume_and_query() -> None:
    found = [line for line in typed() if line and not line.startswith(("kill", "exit"))]
    assert len(found) == 5
    wanted = ("pip install", "strata cluster", "strata produce", "strata consume", "SELECT")
    assert [word for line, word in zip(found, wanted, strict=True) if word not in line] == []


@pytest.mark.parametrize("number", range(1, 4))
def test_the_tools_still_accept_the_commands(number: int) -> None:
    line = typed()[number].rstrip("&").strip()
    ours = [command for command in commands(re.sub(r"2>&1", "", line)) if command[0] == "strata"]
    assert ours
    assert [fault for command in ours for fault in faults(command)] == [], shlex.join(ours[0])
