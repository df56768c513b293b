"""All questions by name. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from stratalog.clients.console.question import Question
from stratalog.clients.console.questions import (
    access,
    brokers,
    groups,
    overview,
    records,
    topics,
    transactions,
)
from stratalog.clients.console.sql import sql
from stratalog.clients.console.stored import as_of, record_way, who_led

_MODULES = (
    overview,
    topics,
    records,
    groups,
    transactions,
    access,
    brokers,
    as_of,
    who_led,
    record_way,
    sql,
)  # fmt: skip

QUESTIONS: Mapping[str, Question] = MappingProxyType(
    {question.name: question for module in _MODULES for question in module.QUESTIONS}
)
"""Name -> question: what pages, `/api/NAME` and agents ask."""
