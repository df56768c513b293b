"""Back the metadata log up into a file, restore it from one, and keep the storage domains. Kafka has no such tool.

I/O: `backup` reads the metadata root, beside running brokers. `restore` reads the brokers' roots, which must be
stopped, and writes a new metadata root.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from stratalog.clients.admin.admin import Admin
from stratalog.clients.admin.metadata_backup import CHECK_MS, check_empty, check_stopped, read_inventory, restore_backup
from stratalog.jobs.command.arguments import SERVERS, cluster_root
from stratalog.jobs.command.flags import Flag, Rule, switch
from stratalog.jobs.command.progress import progress
from stratalog.jobs.command.properties import read_text
from stratalog.jobs.command.terminal import DONE, UsageError, complain
from stratalog.jobs.command.tool import Command
from stratalog.replication.controller.domains.promotions import Promotion
from stratalog.replication.metadata.backup.backup import Backup, decode_backup, encode_backup, restored_records
from stratalog.replication.metadata.backup.copies import newest_copy, take_backup
from stratalog.replication.stores import DeltaStores, Stores
from stratalog.server.admin.domains import StorageDomainDescription
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.files.cache import FileCache
from stratalog.storage.objects.opened import open_store

BACKUP, RESTORE, DOMAINS = "backup", "restore", "domains"
PURPOSE = "Back up the metadata log of a cluster, restore it into an empty metadata root, or keep its storage domains."
EPILOG = """examples (ROOT is the metadata root that `strata cluster` printed):
  {prog} backup --root ROOT --output metadata.jsonl
  {prog} restore --root NEW_ROOT --input metadata.jsonl --dry-run
  {prog} restore --root NEW_ROOT --input metadata.jsonl
  {prog} restore --root NEW_ROOT --broker-root BROKER_ROOT
  {prog} domains --root ROOT
  {prog} domains --root ROOT --add lake --url s3://bucket/kafka

A backup holds topics, configs, leaders, ISRs and all else that the metadata log knows, but no records of topics: those
are on the brokers' roots. It is consistent, and brokers need not stop for it.

A restore needs all brokers stopped. It reads what their roots hold and adapts the backup to that, however old it is:
every epoch and id begins above all that were used; of each partition the one replica that has everything that was
acknowledged is the ISR, and the others follow it again; topics and partitions that came after the backup are restored
from their tables. It cannot know configs altered later, and deletions. A topic that was deleted after the backup
comes back, empty. Start the brokers on the new metadata root then.

Each broker copies the metadata log to its own root while it changes, by default once a minute at most
(stratalog.metadata.backup.interval.ms). A restore without --input takes the newest of these copies, from the roots of
--broker-root and those that they name.

--allow-unreadable restores although a root or a table cannot be read: then the newest records of partitions may be
lost, as after an unclean election.
A storage domain is a place that keeps what is stored there by itself: a bucket's prefix, or a replicated file system
that all brokers see (--durable says that it is one). A topic whose stratalog.storage.domain names it has one table a
partition there, for all its brokers: no copies, no followers. All brokers need credentials for it. One cluster uses a
place: the object stratalog-domain.json there says which. Set stratalog.storage.domain of a topic to move it, and
stratalog.storage.copies to have it followed into other domains (strata configs); strata reassign-partitions --list
shows what is under way. --racks says which brokers use a domain, as those of its region. --promote makes a domain the
home of all topics that have a copy there, as when the region of the old home is lost.

exit code: 0 when it was done, 1 with a line on standard error when not; a refused restore writes nothing
"""


ON_STORAGE = "the metadata log is"
OF_DOMAINS = "add url durable racks remove lost promote leave unclean json"
"""The flags of `domains`."""


# fmt: off
FLAGS = {"": (
    Flag("action", f"{BACKUP}|{RESTORE}|{DOMAINS}", "What to do.", choices=(BACKUP, RESTORE, DOMAINS),
         is_positional=True),
    Flag("root", "ROOT", "REQUIRED: The metadata root; for a restore an empty or new one."),
    SERVERS,
    Flag("output", "FILE", "Where to write the backup; - is standard output."),
    Flag("input", "FILE", "The backup to restore; without it the newest copy in brokers' roots."),
    Flag("broker-root", "ROOT", "A broker's root that moved, came after the backup or has a copy; may be repeated.",
         is_repeated=True),
    switch("dry-run", "Print what a restore would do, and write nothing."),
    switch("allow-unreadable", "Restore although a root or a table cannot be read."),
    Flag("add", "NAME", "The storage domain to add, before all are listed."),
    Flag("url", "URL", "Its place: a URL, or a directory that all brokers see."),
    switch("durable", "What is stored there survives the loss of any machine, although it is no object store."),
    Flag("racks", "RACK[,RACK]", "The broker.rack of the brokers that use it; without it any."),
    Flag("remove", "NAME", "The storage domain to forget, in which nothing is."),
    switch("lost", "With --remove: its place is gone for good, tables that were left there are not deleted before."),
    Flag("promote", "NAME", "The storage domain that is to be the home of all topics with a copy there."),
    Flag("leave", "NAME", "With --promote: a domain that keeps no copy; may be repeated.", is_repeated=True),
    switch("unclean", "With --promote: where nobody else can lead, let a copy lead that is behind: records are lost."),
    switch("json", "Print a JSON object a line for each domain."),
)}
RULES = (
    *Rule.required("action", message="the following arguments are required: {}\nTry '{{prog}} --help'."),
    Rule('Missing required argument "[root]"', RESTORE, "root bootstrap-server"),
    *Rule.required("output", BACKUP),
    *Rule.not_with(BACKUP, "input", 'Option "[{}]" can\'t be used with "{}"'),
    *Rule.not_with(RESTORE, "output", 'Option "[{}]" can\'t be used with "{}"'),
    *Rule.not_with(BACKUP, "broker-root dry-run allow-unreadable",
              '--broker-root, --dry-run and --allow-unreadable go with "restore"'),
    *Rule.not_with(DOMAINS, "output input broker-root dry-run allow-unreadable",
                   'Option "[{}]" can\'t be used with "{}"'),
    *Rule.not_with(BACKUP, OF_DOMAINS, '"[{}]" goes with "domains", not with "{}"'),
    *Rule.not_with(RESTORE, OF_DOMAINS, '"[{}]" goes with "domains", not with "{}"'),
    *Rule.required("url", "add"),
    *Rule.required("add", "url"),
    *Rule.required("add", "durable"),
    *Rule.required("add", "racks"),
    *Rule.required("remove", "lost"),
    *Rule.required("promote", "leave"),
    *Rule.required("promote", "unclean"),
)
# fmt: on


def backup(root: str, output: str) -> None:
    """Write a backup; a file is there whole or not at all."""
    ids = RandomIds()
    taken = take_backup(DeltaStores(ids), root, SystemClock(), ids)
    text = encode_backup(taken)
    if output == "-":
        print(text, end="")
        return
    file = Path(output)
    part = file.with_name(f"{file.name}.{ids.new_id()}.part")
    try:
        with part.open("w", encoding="utf-8") as writing:
            writing.write(text)
            writing.flush()
            os.fsync(writing.fileno())
        part.replace(file)
    except OSError as reason:
        part.unlink(missing_ok=True)
        raise UsageError(f"{output} cannot be written: {reason.strerror}") from reason
    topics = len(taken.image().topic_ids)
    count, end_offset = len(taken.records), taken.end_offset
    print(f"Backed up cluster {taken.cluster_id}: {count} records up to offset {end_offset}, {topics} topics.")


def restore(given: argparse.Namespace, check_ms: int = CHECK_MS) -> None:
    """Restore, or print what that would do."""
    ids, clock = RandomIds(), SystemClock()
    stores = DeltaStores(ids, FileCache(0))
    taken = _to_restore(given, stores)
    root = cluster_root(given, ON_STORAGE)
    if "://" not in root and Path(root).is_dir():
        check_empty(stores, root)
    with progress("roots read") as bar:
        inventory = read_inventory(taken, stores, clock, given.broker_root, bar.set)
    for place, why in inventory.unreadable.items():
        complain(f"{place} cannot be read: {why}")
    if inventory.unreadable and not given.allow_unreadable:
        raise UsageError(
            "Nothing was restored: make the roots readable, name them by --broker-root if they moved, or give "
            "--allow-unreadable"
        )
    check_stopped(inventory, stores, clock, check_ms)
    if given.dry_run:
        restoration = restored_records(taken, inventory.roots)
    else:
        open_store(root, create=True)
        restoration = restore_backup(taken, inventory, stores, root, clock, ids)
    for line in restoration.messages:
        print(line)
    done = "Would restore" if given.dry_run else "Restored"
    brokers = ",".join(str(found.broker_id) for found in inventory.roots)
    print(f"{done} cluster {taken.cluster_id} from {len(taken.records)} records and the roots of brokers {brokers}.")


def _to_restore(given: argparse.Namespace, stores: Stores) -> Backup:
    """The backup of a file, else the newest copy in the brokers' roots."""
    if given.input is not None:
        return decode_backup(read_text(given.input))
    if not given.broker_root:
        raise UsageError("Nothing to restore from: give --input, or --broker-root for the copies in brokers' roots")
    found = newest_copy(stores, given.broker_root)
    taken = datetime.fromtimestamp(found.backup.taken_ms / 1_000, UTC)
    upto = f"up to offset {found.backup.end_offset}, of {taken:%Y-%m-%d %H:%M:%S} UTC"
    print(f"The newest copy is in {found.root}: {upto}.")
    return found.backup


def domains(given: argparse.Namespace) -> int:
    """Do what the flags ask for, and list the domains; the exit code."""
    admin = Admin(cluster_root(given, "what storage domains there are is"))
    if given.add is not None:
        racks = None if given.racks is None else [each.strip() for each in given.racks.split(",") if each.strip()]
        admin.add_storage_domain(given.add, given.url, durable=True if given.durable else None, racks=racks)
    if given.remove is not None:
        admin.remove_storage_domain(given.remove, is_lost=given.lost)
    if given.promote is not None:
        promoted = admin.promote_storage_domain(given.promote, leave=given.leave, unclean=given.unclean)
        print(promotion_line(given.promote, promoted), file=sys.stderr if given.json else sys.stdout)
    for each in admin.describe_storage_domains():
        print(json.dumps(asdict(each), separators=(",", ":")) if given.json else domain_line(each))
    return DONE


def promotion_line(name: str, promotion: Promotion) -> str:
    """What a promotion did.

    >>> promotion_line("sea", Promotion(("a", "b"), (), ()))
    'The home of 2 topics is sea: 0 partitions wait for their copy, 0 were elected uncleanly.'
    """
    waiting, unclean = len(promotion.waiting), len(promotion.unclean)
    return (
        f"The home of {len(promotion.topics)} topics is {name}: {waiting} partitions wait for their copy, "
        f"{unclean} were elected uncleanly."
    )


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


def metadata_backup(given: argparse.Namespace) -> int:
    """Do what the flags ask for; the exit code."""
    if given.action == DOMAINS:
        return domains(given)
    if given.action == BACKUP:
        backup(cluster_root(given, ON_STORAGE), given.output)
    else:
        restore(given)
    return DONE


main = Command("metadata", PURPOSE, EPILOG, FLAGS, metadata_backup, RULES)
