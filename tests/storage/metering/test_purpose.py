"""What a call is for: each path that the product makes has its purpose."""

from __future__ import annotations

import pytest

from stratalog.clients.typed_tables.notes import FOLDER as NOTES
from stratalog.replication.broker_root import META_PROPERTIES
from stratalog.replication.controller.sessions import session_path
from stratalog.replication.folders import topic_folder
from stratalog.replication.metadata.backup.copies import COPIES_PREFIX, SINKS_PREFIX
from stratalog.replication.metadata.history.commits import HISTORY_DIRECTORY
from stratalog.replication.metadata.log import METADATA_COMMITS
from stratalog.replication.progress.of_session import session_states_prefix
from stratalog.replication.progress.progress import follower_progress_path, leader_ends_path, leader_progress_path
from stratalog.replication.requests.hand_over import answer_path, request_path
from stratalog.replication.requests.inbox_frames import answers_path, frames_path
from stratalog.storage.delta.checkpoint import LAST_CHECKPOINT
from stratalog.storage.delta.removed import producers_path
from stratalog.storage.files.batch_file import DATA_DIRECTORIES, HANDED_DIRECTORY, placed_path
from stratalog.storage.files.data_file import PartitionValues
from stratalog.storage.metering.calls import KINDS
from stratalog.storage.metering.purpose import PURPOSES, purpose_of, purpose_of_call

FILE = placed_path(f"{HANDED_DIRECTORY}/ab.0000ffff.parquet", PartitionValues(7, 3, 12))
IN_DOMAIN = f"{topic_folder('orders', 32 * '0')}/orders-0"
PATHS = {
    f"orders-0/{FILE}": "data",
    f"orders-0/{HANDED_DIRECTORY}/ab.0000ffff.parquet": "data",
    f"orders-0/{DATA_DIRECTORIES[0]}": "data",
    "orders-0/_delta_log/00000000000000000007.json": "commit",
    "orders-0/_delta_log/": "commit",
    "__consumer_offsets-3/_delta_log/00000000000000000007.json": "commit",
    "orders-0/_delta_log/00000000000000000010.checkpoint.parquet": "checkpoint",
    f"orders-0/_delta_log/{LAST_CHECKPOINT}": "checkpoint",
    f"orders-0/{producers_path(255)}": "producers",
    f"{IN_DOMAIN}/{FILE}": "data",
    f"{IN_DOMAIN}/_delta_log/00000000000000000007.json": "commit",
    leader_progress_path(12): "progress",
    leader_ends_path(12): "progress",
    follower_progress_path(12, 1, "a"): "progress",
    f"{session_states_prefix(12)}a": "progress",
    session_path(1): "session",
    request_path("c1"): "inbox",
    answer_path("c1"): "inbox",
    frames_path("c1", 7): "inbox",
    answers_path("c1", 7): "inbox",
    f"{METADATA_COMMITS}00000000000000000007.json": "metadata",
    f"{HISTORY_DIRECTORY}/_delta_log/00000000000000000007.json": "metadata",
    f"{COPIES_PREFIX}00000000000000000001.jsonl": "backup",
    f"{SINKS_PREFIX}q/r/1-x.json": "sink",
    f"{NOTES}ab.json": "sink",
    META_PROPERTIES: "other",
    "": "other",
}


@pytest.mark.parametrize(("path", "purpose"), PATHS.items())
def test_a_path_has_a_purpose(path: str, purpose: str) -> None:
    assert purpose_of(path) == purpose


def test_every_purpose_is_one_of_a_path_or_of_a_call() -> None:
    assert {*PATHS.values(), "poll", "clean-up"} == set(PURPOSES)


def test_a_commit_that_is_not_there_was_polled_for_and_what_is_deleted_is_clean_up() -> None:
    commit = "orders-0/_delta_log/00000000000000000007.json"
    assert purpose_of_call("get", commit) == "commit"
    assert purpose_of_call("get", commit, is_absent=True) == "poll"
    assert purpose_of_call("create", commit) == "commit"
    assert purpose_of_call("get", session_path(1), is_absent=True) == "session"
    assert {purpose_of_call(kind, commit) for kind in KINDS} == {"commit", "clean-up"}
