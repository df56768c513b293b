"""All questions and changes by name. I/O: that of those who answer."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from stratalog.clients.console.changes import access as access_changes
from stratalog.clients.console.changes import groups as group_changes
from stratalog.clients.console.changes import partitions as partition_changes
from stratalog.clients.console.changes import settings as setting_changes
from stratalog.clients.console.changes import topics as topic_changes
from stratalog.clients.console.changes import typed_tables as typed_changes
from stratalog.clients.console.changes.change import ClusterChange
from stratalog.clients.console.over_time import lags, rates
from stratalog.clients.console.question import Question
from stratalog.clients.console.questions import (
    access,
    brokers,
    groups,
    overview,
    records,
    schemas,
    topics,
    transactions,
)
from stratalog.clients.console.sql import sql
from stratalog.clients.console.stored import as_of, erasure, files, record_way, who_led
from stratalog.clients.console.typed import questions as typed

_MODULES = (
    overview,
    topics,
    records,
    groups,
    transactions,
    access,
    brokers,
    schemas,
    typed,
    rates,
    lags,
    as_of,
    who_led,
    record_way,
    erasure,
    files,
    sql,
)  # fmt: skip

QUESTIONS: Mapping[str, Question] = MappingProxyType(
    {question.name: question for module in _MODULES for question in module.QUESTIONS}
)
"""Name -> question: what pages, `/api/NAME` and agents ask."""

_CHANGING = (topic_changes, group_changes, access_changes, partition_changes, setting_changes, typed_changes)
CHANGES: Mapping[str, ClusterChange] = MappingProxyType(
    {change.name: change for module in _CHANGING for change in module.CHANGES}
)
"""Name -> change: what `/change/NAME` shows and does."""
