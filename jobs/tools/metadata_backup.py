"""Back the metadata log up into a file, and make it again from one. Ours.

I/O: `backup` reads the metadata root, beside running brokers. `restore` reads the brokers' roots, which must be
stopped, and writes a new metadata root.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from stratalog.clients.admin.metadata_backup import (
    CHECK_MS,
    check_empty,
    check_stopped,
    read_inventory,
    restore_backup,
    take_backup,
)
from stratalog.jobs.command.arguments import Parser, cluster_root
from stratalog.jobs.command.terminal import DONE, UsageError, complain, run
from stratalog.replication.metadata.backup import decode_backup, encode_backup, restored_records
from stratalog.replication.stores import DeltaStores
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.files.cache import FileCache
from stratalog.storage.objects.remote import open_store

BACKUP, RESTORE = "backup", "restore"
PURPOSE = "Back up the metadata log of a cluster, or restore it into an empty metadata root."
EPILOG = """examples (ROOT is the metadata root that strata-cluster printed):
  {prog} backup --root ROOT --output metadata.jsonl
  {prog} restore --root NEW_ROOT --input metadata.jsonl --dry-run
  {prog} restore --root NEW_ROOT --input metadata.jsonl

A backup holds topics, configs, leaders, ISRs and all else that the metadata log knows, but no records of topics: those
are on the brokers' roots. It is consistent, and brokers need not stop for it.

A restore needs all brokers stopped. It reads what their roots hold and lets the backup fit that, however old it is:
every epoch and id begins above all that were used; of each partition the one replica that has everything that was
acknowledged is the ISR, and the others follow it anew; topics and partitions that came after the backup are taken in
from their tables. What it cannot know: configs altered later, and deletions. A topic that was deleted after the backup
comes back, empty. Start the brokers on the new metadata root then.

--allow-unreadable restores although a root or a table cannot be read: then the newest records of partitions may be
lost, as after an unclean election.
exit code: 0 when it was done, 1 with a line on standard error when not; a refused restore writes nothing
"""


def parser() -> Parser:
    """All flags."""
    made = Parser("metadata_backup", PURPOSE, "")
    made.epilog = EPILOG.format(prog=made.prog)
    made.add_argument("action", choices=(BACKUP, RESTORE), help="What to do.")
    made.add_argument("--root", metavar="ROOT", help="REQUIRED: The metadata root; for a restore an empty or new one.")
    made.add_argument("--output", metavar="FILE", help="Where to write the backup; - is standard output.")
    made.add_argument("--input", metavar="FILE", help="The backup to restore.")
    made.add_argument(
        "--broker-root", action="append", default=[], metavar="ROOT", help="A broker's root that moved or was made "
        "after the backup; may be repeated.",
    )  # fmt: skip
    made.add_argument("--dry-run", action="store_true", help="Say what a restore would do, and write nothing.")
    made.add_argument(
        "--allow-unreadable", action="store_true", help="Restore although a root or a table cannot be read."
    )
    made.set_defaults(bootstrap_server=None)
    return made


def check_flags(given: argparse.Namespace) -> None:
    """UsageError when the flags do not go together."""
    if given.root is None:
        raise UsageError('Missing required argument "[root]"')
    needed, other = ("output", "input") if given.action == BACKUP else ("input", "output")
    if getattr(given, needed) is None:
        raise UsageError(f'Missing required argument "[{needed}]"')
    if getattr(given, other) is not None:
        raise UsageError(f'Option "[{other}]" can\'t be used with "{given.action}"')
    if given.action == BACKUP and (given.broker_root or given.dry_run or given.allow_unreadable):
        raise UsageError('--broker-root, --dry-run and --allow-unreadable go with "restore"')


def backup(root: str, output: str) -> None:
    """Write a backup; a file appears whole or not at all."""
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
    """Restore, or say what that would do."""
    try:
        text = Path(given.input).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as reason:
        raise UsageError(f"{given.input} cannot be read: {getattr(reason, 'strerror', None) or reason}") from reason
    taken = decode_backup(text)
    ids, clock = RandomIds(), SystemClock()
    stores = DeltaStores(ids, FileCache(0))
    root = cluster_root(given)
    if "://" not in root and Path(root).is_dir():
        check_empty(stores, root)
    inventory = read_inventory(taken, stores, clock, given.broker_root)
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


def metadata_backup(arguments: Sequence[str] | None) -> int:
    """The tool without its terminal: raises what went wrong."""
    given = parser().parse(arguments)
    check_flags(given)
    if given.action == BACKUP:
        backup(cluster_root(given), given.output)
    else:
        restore(given)
    return DONE


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    return run(lambda: metadata_backup(arguments))


if __name__ == "__main__":
    sys.exit(main())
