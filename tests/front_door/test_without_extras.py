"""Log, brokers, listeners and clients are imported without Spark, and without any other package of an extra."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
IMPORT_ALL = """
import json, sys
from importlib import import_module
from pkgutil import walk_packages
from stratalog.storage.extras import EXTRA_OF

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRA_OF:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
failed = []
for room in ("wire", "storage", "replication", "server", "clients", "jobs"):
    package = import_module(f"stratalog.{room}")
    for found in walk_packages(package.__path__, f"{package.__name__}."):
        try:
            import_module(found.name)
        except ModuleNotFoundError:
            failed.append(found.name)
import stratalog
try:
    stratalog.register_data_source
except ImportError as error:
    told = str(error)
from stratalog.jobs.typed_table import main
given = ["--root", "r", "--topic", "t", "--table", "t", "--config", "value.format=json"]
print(json.dumps([failed, told, main(given)]))
"""
WITH_SPARK = (
    "stratalog.replication.fast_start.", "stratalog.replication.spark.", "stratalog.clients.spark.",
    "stratalog.clients.typed_tables.", "stratalog.jobs.demo.", "stratalog.jobs.typed_table",
)  # fmt: skip
WITH_PROTOBUF = ("stratalog.clients.schemas.",)


def test_no_module_outside_of_sparks_parts_needs_an_extra() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL], cwd=PROJECT, capture_output=True, text=True, check=True, timeout=120
    )
    failed, told, exit_code = json.loads(done.stdout)
    assert [name for name in failed if not name.startswith(WITH_SPARK + WITH_PROTOBUF)] == []
    assert told == "stratalog.register_data_source needs the package pyspark: pip install 'stratalog[spark]'"
    assert exit_code == 1
    assert "stratalog.stratalog_session needs the package p" in done.stderr
