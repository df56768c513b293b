"""The format `stratalog` in sessions whose Python workers do not find it by themselves.

I/O: starts the Python of Spark's workers to see what it can import.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from stratalog.clients.spark.source import StratalogDataSource
from stratalog.storage.errors import InvalidConfigError


def register_data_source(spark: SparkSession) -> None:
    """Make `format("stratalog")` known to a session whose Python workers do not find it by themselves.

    They run PYSPARK_PYTHON, or else the `python3` of PATH, which in an environment that is not activated is another
    Python. Where nothing was set and Spark runs on this machine, the source's processes are started with this Python
    instead. InvalidConfigError: the workers' Python was chosen, or runs elsewhere, and cannot import stratalog here.
    """
    if isinstance(spark, SparkSession):  # a session of Spark Connect has its workers at the server
        context = spark.sparkContext
        was_chosen = "PYSPARK_PYTHON" in os.environ or context.getConf().get("spark.pyspark.python") is not None
        if not was_chosen and (context.master or "").startswith("local"):
            context.pythonExec = sys.executable
        elif not _imports_stratalog(context.pythonExec):
            raise InvalidConfigError(
                f"Spark's Python workers run {context.pythonExec}, which cannot import stratalog: set PYSPARK_PYTHON "
                f"to a Python that can, such as {sys.executable}, before the session starts"
            )
    spark.dataSource.register(StratalogDataSource)


def _imports_stratalog(python: str) -> bool:
    """Whether the Python does on this machine; True when this machine does not have it."""
    found = shutil.which(python)
    if found is None or Path(found) == Path(sys.executable):
        return True
    command = [found, "-c", "import importlib.util as u; raise SystemExit(u.find_spec('stratalog') is None)"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
