"""Our answers to the scripts, beside the recorded ones of Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.differential import clusters, normal
from tests.lab.differential.answers import recorded_answers
from tests.lab.differential.comparison import compare, known_everywhere, rows
from tests.lab.differential.dialogue import Dialogue, Peer
from tests.lab.differential.messages import api_key
from tests.lab.differential.random_dialogues import KINDS, begin
from tests.lab.differential.scripts import NAMES, RUNS, script

REQUESTS_MIN = 300
ROWS_MAX = 30


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with clusters.stratalog(tmp_path_factory.mktemp("differential") / "cluster") as made:
        yield made


@pytest.mark.parametrize("name", NAMES)
def test_answers_are_those_of_kafka(peer: Peer, name: str) -> None:
    ours = {}
    for run in RUNS:
        ours |= Dialogue(peer, run).answers(name)
    found = compare(name, recorded_answers()[name], ours)
    assert found.unlisted == [], "\n".join(found.unlisted)
    assert found.not_seen == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_random_dialogue_is_answered_alike_twice(peer: Peer, kind: str) -> None:
    """`make differential-random` asks Kafka, too."""
    begin(peer)
    assert KINDS[kind](1, 30, peer, peer) == []


def test_every_api_is_asked(peer: Peer) -> None:
    """Each in its lowest and highest version; 36, which no client may send here, is asked, too."""
    recorded = recorded_answers()
    assert sum(map(len, recorded.values())) >= REQUESTS_MIN
    asked = {step.api for name in NAMES for step in script(name)}
    assert peer.versions.keys() <= {api_key(api) for api in asked if api}


def test_known_differences_are_rows_of_the_page() -> None:
    named = {row for name in NAMES for step in script(name) for row in step.known.values()}
    named |= {each["row"] for each in known_everywhere()}
    assert named <= set(rows())
    assert len(rows()) <= ROWS_MAX


def test_an_answer_is_compared_field_by_field() -> None:
    kafka = {"topics": [{"name": "a", "errorCode": 0}, {"name": "b", "errorCode": 3}]}
    ours = {"topics": [{"name": "b", "errorCode": 3}, {"name": "a", "errorCode": 5}, {"name": "c"}]}
    assert normal.differences(normal.normal(kafka, {}), normal.normal(ours, {})) == {
        "topics[a].errorCode": (0, 5),
        "topics[c].name": ("absent", "c"),
    }


def test_ids_that_a_script_knows_are_told_by_name() -> None:
    answer = {"topicId": "0" * 31 + "7", "errorMessage": "no topic AAAAAAAAAAAAAAAAAAAABw", "memberId": "a-" + "1" * 32}
    assert normal.normal(answer, {"made": "0" * 31 + "7"}) == {
        "topicId": "$made",
        "errorMessage": "no topic $made",
        "memberId": "a-<id>",
    }
