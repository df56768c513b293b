"""Whether a broker needs fetch sessions at all. Pure.

A session that copies nothing still beats, and reads the metadata log and the objects of other sessions: on an object
store each of these is paid.
"""

from __future__ import annotations

from stratalog.replication.metadata.image import ClusterImage


def needs_sessions(image: ClusterImage, broker_id: int) -> bool:
    """Whether this broker has a replica with copies elsewhere: it follows, or may follow after an election.

    Replicas that share a table in a storage domain copy nothing from each other.
    """
    return any(
        broker_id in state.replicas and len(state.sharing(broker_id)) < len(state.replicas)
        for state in image.partitions.values()
    )
