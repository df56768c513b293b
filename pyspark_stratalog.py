"""Makes `spark.readStream.format("stratalog")` work without a register call. I/O: none of its own.

Spark imports every top-level module named `pyspark_*` for an unknown format, and uses its `DefaultSource`.
"""

from __future__ import annotations

from stratalog.storage.extras import explained

try:
    from stratalog.clients.spark.source.source import StratalogDataSource as DefaultSource
except ImportError as reason:
    raise explained("stratalog's source", reason) from reason

__all__ = ["PLANNERS_LOAD", "DefaultSource"]

PLANNERS_LOAD = ("stratalog.clients.spark.source.stream_reader", "stratalog.replication.spark.fetch", "pandas")
"""The modules that planners of streaming queries load, those of a broker's fetch queries too; pyarrow loads pandas."""
