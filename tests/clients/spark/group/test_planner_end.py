"""The end of a planner's process: what is to be done then is done once."""

from __future__ import annotations

import subprocess
import sys

import pytest

MADE = "from stratalog.clients.spark.group.planner_end import PlannerEnd; end = PlannerEnd(lambda: print('left'))"


@pytest.mark.parametrize("code", ["", "; end()", "; end(); end()", "; raise SystemExit(1)"])
def test_a_planner_stops_once_at_the_latest_when_its_process_exits(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", MADE + code], stdout=subprocess.PIPE, text=True, check=False)
    assert done.stdout == "left\n"
