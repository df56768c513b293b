"""The Spark source: `spark.read.format("stratalog")` and `spark.readStream.format("stratalog")`.

I/O: through `batch_reader` and `stream_reader`. Schema, options, offsets in the checkpoint and errors are the Kafka
connector's. Planning runs in a process of Spark's, never in the user's driver: the cluster is reached through storage
only. Every streaming query starts such a process, so each loads only what it needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from stratalog.clients.spark.worker import loading, pushes_filters, sentence_first
from stratalog.storage.errors import InvalidConfigError, StratalogError

if TYPE_CHECKING:
    from stratalog.clients.spark.sink.sink import StratalogStreamWriter, StratalogWriter
    from stratalog.clients.spark.source.batch_reader import StratalogReader
    from stratalog.clients.spark.source.stream_reader import StratalogStreamReader


class StratalogDataSource(DataSource):
    """The format `stratalog`.

    of_session  options of every reader and writer, by lower-case names; their own take precedence
    """

    of_session: ClassVar[Mapping[str, str]] = {}

    def __init__(self, options: Mapping[str, str]) -> None:
        given = dict(options)
        names = {name.lower() for name in given}
        super().__init__({name: text for name, text in self.of_session.items() if name not in names} | given)

    @classmethod
    def name(cls) -> str:
        return "stratalog"

    @sentence_first()
    def schema(self) -> StructType:
        """Called at `.load()`, for batch reads and streams alike: wrong options and names are refused here."""
        with loading():
            from stratalog.clients.spark.offsets import check_source
            from stratalog.clients.spark.options import load_options
        options = load_options(self.options)
        check_source(options)
        return self._columns()

    def _columns(self) -> StructType:
        with loading():
            from stratalog.clients.spark.options import source_columns
            from stratalog.clients.spark.source.read import arrow_schema
        return from_arrow_schema(arrow_schema(source_columns(self.options)))

    @sentence_first()
    def reader(self, schema: StructType) -> StratalogReader:
        with loading():
            from stratalog.clients.spark.options import batch_options
            from stratalog.clients.spark.source.batch_reader import FilteringReader, StratalogReader
        self._check_schema(schema)
        reader = FilteringReader if pushes_filters() else StratalogReader
        return reader(batch_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        try:
            return self._stream_reader(schema)
        except StratalogError as refusal:
            return RefusedStream(refusal)

    def _stream_reader(self, schema: StructType) -> StratalogStreamReader:
        with loading():
            from stratalog.clients.spark.options import stream_options
            from stratalog.clients.spark.source.stream_reader import StratalogStreamReader
        self._check_schema(schema)
        options = stream_options(self.options)
        if options.group is not None and options.group.is_shared:
            with loading():
                from stratalog.clients.spark.group.shared_reader import SharedStreamReader
            return SharedStreamReader(options, options.group)
        return StratalogStreamReader(options)

    @sentence_first()
    def writer(self, schema: StructType, overwrite: bool) -> StratalogWriter:
        with loading():
            from stratalog.clients.spark.options import sink_options
            from stratalog.clients.spark.sink.sink import StratalogWriter
        return StratalogWriter(sink_options(self.options), schema, overwrite)

    @sentence_first()
    def streamWriter(self, schema: StructType, overwrite: bool) -> StratalogStreamWriter:  # noqa: ARG002, N802
        with loading():
            from stratalog.clients.spark.options import sink_options
            from stratalog.clients.spark.sink.sink import StratalogStreamWriter
        return StratalogStreamWriter(sink_options(self.options), schema)

    def _check_schema(self, schema: StructType) -> None:
        if schema.simpleString() != self._columns().simpleString():
            raise InvalidConfigError(
                "Kafka source has a fixed schema and cannot be set with a custom one. Leave the schema out."
            )


class RefusedStream(DataSourceStreamReader):
    """A stream whose options are wrong: its first call raises. Spark loses the error of a reader that was not made."""

    def __init__(self, refusal: StratalogError) -> None:
        self._refusal = refusal

    @sentence_first()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        raise self._refusal

    @sentence_first()
    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        raise self._refusal

    @sentence_first()
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        raise self._refusal

    @sentence_first()
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:  # noqa: ARG002
        raise self._refusal

    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: ARG002
        raise self._refusal


def source_of_session(options: Mapping[str, str]) -> type[StratalogDataSource]:
    """The format with options of a session's. Spark copies such a class into its processes, and shows none of them."""
    if not options:
        return StratalogDataSource

    class SessionDataSource(StratalogDataSource):
        of_session: ClassVar[Mapping[str, str]] = dict(options)

    return SessionDataSource
