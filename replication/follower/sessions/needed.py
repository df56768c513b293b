"""Whether a broker needs fetch sessions at all. Pure.

A session that copies nothing still beats, and reads the metadata log and the objects of other sessions: on an object
store each of these is paid.
"""

from __future__ import annotations

from stratalog.replication.metadata.image import ClusterImage


def needs_sessions(image: ClusterImage, broker_id: int) -> bool:
    """Whether this broker has a replica with copies elsewhere: it follows, or may follow after an election.

    The replicas of a partition in a storage domain have one table: nobody copies there.
    """
    return any(
        broker_id in state.replicas and len(state.replicas) > 1 and not state.domain
        for state in image.partitions.values()
    )
