"""Makes `spark.readStream.format("stratalog")` work without a register call. I/O: none of its own.

Spark imports every top-level module named `pyspark_*` for an unknown format, and uses its `DefaultSource`.
"""

from __future__ import annotations

from stratalog.clients.spark.source import StratalogDataSource as DefaultSource

__all__ = ["DefaultSource"]
