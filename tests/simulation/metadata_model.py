"""The metadata log as it would be without compaction, beside the folds of all parts of a simulated cluster.

Compaction of the log keeps the image: whoever has folded all records has the image of the log that was never compacted,
whether the fold began again behind the cleaner or followed every commit. And what a broker, controller or fetch session
has folded, to act on it, survives a power cut of the metadata root.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.log import MetadataLog
from stratalog.replication.metadata.records import MetadataRecord
from tests.simulation.invariants import Violation


@dataclass(slots=True)
class MetadataModel:
    """`image` and `end_offset`: after all records that were ever committed. `acted_end_offset`: the end of those that
    somebody who acts on them has folded."""

    image: ClusterImage = field(default_factory=ClusterImage)
    end_offset: int = 0
    acted_end_offset: int = 0
    checked_count: int = 0

    def committed(self, records: Sequence[MetadataRecord]) -> None:
        """These records were committed in one piece."""
        for record in records:
            self.image = self.image.fold(record)
        self.end_offset += len(records)

    def check(self, metadata: MetadataLog) -> None:
        """Compare a fold that has all records."""
        if metadata.next_offset != self.end_offset:
            return
        self.checked_count += 1
        if metadata.image != self.image:
            raise Violation("SameImage", f"at offset {self.end_offset}: {metadata.image}, expected {self.image}")

    def lost_power(self, left: MetadataLog) -> None:
        """The log lost its unsynced tail; `left` is a fold of the rest."""
        if left.next_offset < self.acted_end_offset:
            raise Violation(
                "ActedOnStays", f"records up to {self.acted_end_offset} were acted on, {left.next_offset} are left"
            )
        self.image, self.end_offset = left.image, left.next_offset

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Check every fold of the metadata log that moved."""
        fold = MetadataLog._fold

        def checked(metadata: MetadataLog, *, for_sure: bool = False) -> None:
            before = metadata.next_offset
            fold(metadata, for_sure=for_sure)
            if metadata.acts:
                self.acted_end_offset = max(self.acted_end_offset, metadata.next_offset)
            if metadata.next_offset != before:
                self.check(metadata)

        with patch.object(MetadataLog, "_fold", checked):
            yield
