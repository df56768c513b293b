"""docs/spark-options.json is that of the script's cases, and has every option of both formats."""

from __future__ import annotations

from stratalog.clients.spark.option_names import OF_SINK, OF_SOURCE, Comes
from tests.lab.differential.spark import table
from tests.lab.differential.spark.__main__ import OPTIONS
from tests.lab.differential.spark.cases import CASES


def test_the_options_in_the_docs_are_those_of_the_script() -> None:
    written = OPTIONS.read_text(encoding="utf-8")
    assert table.as_json() == written, "python -m tests.lab.differential.spark --write"


def test_every_option_of_kafkas_that_is_taken_here_is_tried_by_a_case() -> None:
    tried = {option for case in CASES for option in case.options}
    assert tried <= set(table.KAFKAS)
    assert set(table.KAFKAS) - tried == {"kafka.bootstrap.servers"}


def test_what_only_our_format_takes_names_its_tests() -> None:
    taken = OF_SOURCE.spelled(Comes.TAKEN) | OF_SINK.spelled(Comes.TAKEN)
    own = {name for name in taken - set(table.KAFKAS) if not name.startswith(table.STORAGE)}
    assert own <= set(table.TRIED_BY_TESTS)
    for path in {*table.TRIED_BY_TESTS.values(), table.STORAGE_TESTS, *table.OWN_GROUPS.values()} - {"every case"}:
        assert (OPTIONS.parents[1] / path).exists()
