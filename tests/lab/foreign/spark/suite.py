"""The checks of Spark's own Kafka source and sink."""

from __future__ import annotations

from tests.lab.foreign.checks import Check, Suite
from tests.lab.foreign.spark.round_trips import CHECKS
from tests.lab.foreign.spark.session import close_session, versions

NAME = "Spark's Kafka source and sink"
S_MAX = 300
"""The first check starts Spark."""


def suite() -> Suite:
    checks = tuple(Check(NAME, does, run, s_max=S_MAX) for does, run in CHECKS.items())
    return Suite({NAME: versions()}, checks, close=close_session)
