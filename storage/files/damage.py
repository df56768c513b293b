"""What is wrong with one replica's table, as its owners hand it on until it is healed. Pure.

The object `_damage.json` in the replica's directory says it. It outlives a restart, and it is read by whoever begins
to lead or follow with that table: it must not lead while another member of the ISR can, and it is copied anew.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from stratalog.storage.errors import CorruptMessageError, DamagedFileError, ObjectNotFoundError, StratalogError

DAMAGE_PATH = "_damage.json"
UNSETTLED = (1 << 31) - 1
"""No epoch is known yet after which what the table held before counts no more."""


@dataclass(frozen=True, slots=True)
class Damage:
    """`path` is the data file that cannot be read; empty: something else, as a commit or a producer state.

    `reason` names the object and the values that were compared, `leader_epoch` is the last
    one under which others may still count on what the table held; it may be healed under a later one.
    """

    reason: str
    path: str = ""
    leader_epoch: int = UNSETTLED

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def from_json(data: bytes) -> Damage:
        """A note that is itself unreadable still says that there is damage."""
        try:
            body = json.loads(data)
            return Damage(str(body["reason"]), str(body["path"]), int(body["leader_epoch"]))
        except (ValueError, KeyError, TypeError) as reason:
            return Damage(f"{DAMAGE_PATH} of {len(data)} bytes is unreadable: {reason}")


def damage_in(reason: StratalogError) -> Damage | None:
    """The damage that an error tells of; None when it tells of something else, as a foreign commit."""
    if isinstance(reason, DamagedFileError):
        return Damage(str(reason), reason.path)
    return Damage(str(reason)) if isinstance(reason, CorruptMessageError | ObjectNotFoundError) else None


def is_about(reason: StratalogError, table_name: str) -> bool:
    """Whether an error is about this table: its message begins with the table's name (or that name's path).

    >>> is_about(CorruptMessageError("file:///b-1/t-0 version 3: torn"), "file:///b-1/t-0")
    True
    >>> is_about(CorruptMessageError("file:///b-1/t-01 version 3: torn"), "file:///b-1/t-0")
    False
    """
    text = str(reason)
    names = (table_name, table_name.removeprefix("file://"))
    return any(text.startswith((f"{name}/", f"{name}:", f"{name} ")) for name in names)
