"""`import stratalog` from the checkout, from another folder, and from the wheel beside folders of the same names."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import stratalog
from stratalog import Admin, Cluster, NewTopic, Producer
from tests.conftest import FIRST_COMPILER_ONLY

ROOT = Path(__file__).resolve().parents[2]
DEPENDENCIES = Path(pa.__file__).parent.parent
ROOMS = ("storage", "wire", "replication", "server", "clients", "jobs", "conf")
WHERE = "import stratalog, stratalog.storage.records; print(stratalog.__file__, stratalog.storage.records.__file__)"

QUICKSTART = """
import sys
from stratalog import Admin, Cluster, Consumer, NewTopic, Producer
from stratalog.replication.config import CLUSTER_TOML, TOPICS_TOML

with Cluster.start("cluster", brokers=2, fetcher="thread") as cluster:
    Admin(cluster).create_topics([NewTopic("orders", 2, 2, {"min.insync.replicas": 2})])
    with Producer(cluster, acks="all") as producer:
        for future in [producer.send("orders", key=f"c{n % 3}", value=f"order {n}") for n in range(20)]:
            future.result(60)
    consumer = Consumer(cluster, auto_offset_reset="earliest")
    consumer.assign_all("orders")
    records = []
    while len(records) < 20:
        records += consumer.poll(5000)
    consumer.close()
assert {record.value.decode() for record in records} == {f"order {n}" for n in range(20)}
assert "pyspark" not in sys.modules
print(sys.modules["stratalog"].__file__, CLUSTER_TOML.is_file(), TOPICS_TOML.is_file())
"""

BY_SPARK = """
import sys
from stratalog import Admin, Cluster, NewTopic, Producer, stratalog_session

def where(batches):
    import pyarrow, stratalog.storage.records
    yield pyarrow.RecordBatch.from_pylist([{"file": stratalog.storage.records.__file__}])

spark = stratalog_session("front door", extra={"spark.driver.extraJavaOptions": sys.argv[1]})
with Cluster.start("cluster", brokers=1, fetcher="thread") as cluster:
    Admin(cluster).create_topics([NewTopic("orders", 1, 1)])
    with Producer(cluster) as producer:
        producer.send("orders", b"order 1").result(60)
    orders = spark.read.format("stratalog").option("stratalog.root", cluster.root).option("subscribe", "orders").load()
    (row,) = orders.collect()
(found,) = spark.range(1, numPartitions=1).mapInArrow(where, "file string").collect()
print(bytes(row.value).decode(), found.file)
spark.stop()
"""

IN_A_PLAIN_SESSION = """
import time
from pathlib import Path
from pyspark.sql import SparkSession

from stratalog import Admin, Cluster, NewTopic, Producer, register_data_source
from stratalog.replication.fast_start import planners

spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
register_data_source(spark)
with Cluster.start("cluster", brokers=1, fetcher="thread") as cluster:
    Admin(cluster).create_topics([NewTopic("orders", 1, 1)])
    with Producer(cluster) as producer:
        producer.send("orders", b"order 1").result(60)
    orders = spark.read.format("stratalog").option("stratalog.root", cluster.root).option("subscribe", "orders").load()
    (row,) = orders.collect()
    source = spark.readStream.format("stratalog").option("stratalog.root", cluster.root).option("subscribe", "orders")
    query = source.load().writeStream.format("noop").option("checkpointLocation", "checkpoint").start()
    forks = f"/proc/{planners._OF_THIS_PROCESS[0].process.pid}/task/{planners._OF_THIS_PROCESS[0].process.pid}/children"
    while not (children := Path(forks).read_text().split()):
        assert query.isActive
        time.sleep(0.1)
    query.stop()
print(bytes(row.value).decode(), spark.sparkContext.pythonExec, len(children))
spark.stop()
"""

REFUSED = """
from pyspark.sql import SparkSession
from stratalog import StratalogError, register_data_source

try:
    register_data_source(SparkSession.builder.getOrCreate())
except StratalogError as reason:
    print(reason)
"""


def run(command: list[str], folder: Path, path: list[Path], **environment: str) -> str:
    """What a command prints that runs in a folder, with these folders alone on PYTHONPATH."""
    ours = ("PYTHON", "SPARK", "PYSPARK")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    inherited |= {"PYTHONPATH": os.pathsep.join(map(str, path))} if path else {}
    done = subprocess.run(
        command, cwd=folder, env=inherited | environment, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def python(code: str, folder: Path, path: list[Path], *arguments: str) -> list[str]:
    """The words that a script prints. Without `site`, so that the editable install is not on the path."""
    (folder / "script.py").write_text(code, encoding="utf-8")
    return run([sys.executable, "-S", "script.py", *arguments], folder, path).split()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    run([sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(folder), str(ROOT)], folder, [])
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The folder that the wheel is installed into."""
    target = wheel.parent / "site"
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", "--target", str(target)]
    run([sys.executable, "-m", "pip", "install", *options, str(wheel)], wheel.parent, [])
    return target


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's folder with packages that have the names of ours and fail when they are imported."""
    for name in ROOMS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise AssertionError('the user\\'s own {name} was imported')\n")
    return tmp_path


def test_from_the_checkout_without_an_installation() -> None:
    found = run([sys.executable, "-S", "-c", WHERE], ROOT, [DEPENDENCIES]).split()
    assert found == [str(ROOT / "stratalog" / "__init__.py"), str(ROOT / "stratalog" / "storage" / "records.py")]


def test_editable_from_another_folder(tmp_path: Path) -> None:
    source = json.loads(importlib.metadata.distribution("stratalog").read_text("direct_url.json") or "{}")
    assert source["dir_info"] == {"editable": True}
    checkout = source["url"].removeprefix("file://")
    found = run([sys.executable, "-c", WHERE], tmp_path, []).split()
    assert found == [f"{checkout}/stratalog/__init__.py", f"{checkout}/stratalog/storage/records.py"]


def test_the_wheel_holds_one_package_and_the_module_that_spark_looks_for(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {Path(name).parts[0] for name in names}
    assert tops == {"stratalog", "pyspark_stratalog.py", f"stratalog-{stratalog.__version__}.dist-info"}
    inside = {Path(name).parts[1] for name in names if name.startswith("stratalog/")}
    assert inside == {"__init__.py", "__main__.py", "py.typed", "testing.py", *ROOMS}
    files = [file.relative_to(ROOT) for room in ROOMS for file in (ROOT / room).rglob("*") if file.is_file()]
    assert {f"stratalog/{file}" for file in files if "__pycache__" not in file.parts} <= set(names)


def test_the_quickstart_by_the_wheel_beside_a_users_own_folders(installed: Path, project: Path) -> None:
    found = python(QUICKSTART, project, [installed, DEPENDENCIES])
    assert found == [str(installed / "stratalog" / "__init__.py"), "True", "True"]


def test_a_tool_by_the_wheel_beside_a_users_own_folders(installed: Path, project: Path) -> None:
    tool = [sys.executable, "-S", "-m", "stratalog", "topics", "--help"]
    assert "--replication-factor" in run(tool, project, [installed, DEPENDENCIES])


def test_sparks_python_workers_import_it(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def where(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import stratalog

        yield pa.RecordBatch.from_pylist([{"version": stratalog.__version__}])

    monkeypatch.chdir(tmp_path)
    with Cluster.start(tmp_path / "cluster", brokers=1, fetcher="thread") as cluster:
        Admin(cluster).create_topics([NewTopic("orders", 1, 1)])
        with Producer(cluster) as producer:
            producer.send("orders", b"order 1").result(60)
        options = {"stratalog.root": cluster.root, "subscribe": "orders"}
        (row,) = spark.read.format("stratalog").options(**options).load().collect()
    assert bytes(row.value) == b"order 1"
    (found,) = spark.range(1, numPartitions=1).mapInArrow(where, "version string").collect()
    assert found.version == stratalog.__version__


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_by_the_wheel_in_sparks_python_workers_beside_a_users_own_folders(installed: Path, project: Path) -> None:
    found = python(BY_SPARK, project, [installed, DEPENDENCIES], FIRST_COMPILER_ONLY)
    assert found == ["order", "1", str(installed / "stratalog" / "storage" / "records.py")]


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder for PATH in which `python3` is a Python without packages, as outside an activated environment."""
    (tmp_path / "bin").mkdir()
    python3 = tmp_path / "bin" / "python3"
    python3.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {sys.executable} -S "$@"\n', encoding="utf-8")
    python3.chmod(0o755)
    return python3.parent


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_a_plain_session_whose_workers_would_run_another_python(installed: Path, project: Path, bare: Path) -> None:
    (project / "script.py").write_text(IN_A_PLAIN_SESSION, encoding="utf-8")
    environment = {"PATH": f"{bare}:{os.environ['PATH']}", "JDK_JAVA_OPTIONS": FIRST_COMPILER_ONLY}
    found = run([sys.executable, "-S", "script.py"], project, [installed, DEPENDENCIES], **environment)
    assert found.split()[-4:] == ["order", "1", sys.executable, "1"]


@pytest.mark.spark
@pytest.mark.slow
def test_a_chosen_python_without_stratalog_is_refused_by_name(installed: Path, project: Path, bare: Path) -> None:
    (project / "script.py").write_text(REFUSED, encoding="utf-8")
    environment = {"PYSPARK_PYTHON": str(bare / "python3"), "JDK_JAVA_OPTIONS": FIRST_COMPILER_ONLY}
    found = run([sys.executable, "-S", "script.py"], project, [installed, DEPENDENCIES], **environment)
    assert f"Spark's Python workers run {bare / 'python3'}, which cannot import stratalog" in found


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_by_the_wheel_under_spark_submit_beside_a_users_own_folders(installed: Path, project: Path) -> None:
    (project / "script.py").write_text(BY_SPARK, encoding="utf-8")
    spark_submit = str(Path(sys.executable).parent / "spark-submit")
    conf = {"SPARK_CONF_DIR": str(installed / "stratalog" / "conf"), "PYSPARK_PYTHON": sys.executable}
    command = [spark_submit, "--master", "local[2]", "script.py", FIRST_COMPILER_ONLY]
    found = run(command, project, [installed, DEPENDENCIES], **conf).splitlines()
    assert found[-1] == f"order 1 {installed / 'stratalog' / 'storage' / 'records.py'}"
