"""The admin client. I/O: as `MetadataAdmin`."""

from __future__ import annotations

from stratalog.server.admin.admin import MetadataAdmin


class Admin(MetadataAdmin):
    """Calls block until their commit is made; those that create partitions, until the leaders have started.

    cluster  a running `Cluster`, or the URL or path of its metadata root.
    """
