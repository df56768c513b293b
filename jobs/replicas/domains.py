"""Lists, adds and removes storage domains. I/O: the metadata log, and the place of a domain that is added."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from stratalog.clients.admin.admin import Admin
from stratalog.jobs.command.arguments import cluster_root
from stratalog.jobs.command.terminal import DONE
from stratalog.server.admin.domains import StorageDomainDescription


def domains(given: argparse.Namespace) -> int:
    """Do what the flags ask for, and list the domains; the exit code."""
    admin = Admin(cluster_root(given, "what storage domains there are is"))
    if given.add is not None:
        admin.add_storage_domain(given.add, given.url, durable=True if given.durable else None)
    if given.remove is not None:
        admin.remove_storage_domain(given.remove)
    for each in admin.describe_storage_domains():
        print(json.dumps(asdict(each), separators=(",", ":")) if given.json else domain_line(each))
    return DONE


def domain_line(domain: StorageDomainDescription) -> str:
    """The line about one domain.

    >>> domain_line(StorageDomainDescription("lake", "s3://b/kafka", True, ("orders",), 12)).split(chr(9))
    ['Domain: lake', 'Url: s3://b/kafka', 'Durable: true', 'Topics: 1', 'Partitions: 12']
    """
    return "\t".join(
        (
            f"Domain: {domain.name}",
            f"Url: {domain.url}",
            f"Durable: {str(domain.durable).lower()}",
            f"Topics: {len(domain.topics)}",
            f"Partitions: {domain.partitions}",
        )
    )
