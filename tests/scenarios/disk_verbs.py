"""The commands of a scenario that change what is on a machine's disk.

wipe 2                              machine 2 stops, and its disk is replaced by an empty one
put-back 2                          machine 2 stops, and the disk before the last `wipe` is in it again
remove-table 2 t-0                  somebody removes the directory of one replica
remove-table 2 t-0 under-way=yes    meanwhile a commit is under way, which arrives afterwards, and whose writer dies
"""

from __future__ import annotations

from dataclasses import replace

from stratalog.replication.stores import replica_of
from stratalog.storage.delta.commit_race import StoredCommit
from tests.scenarios.scenario_cluster import ScenarioCluster
from tests.simulation.cluster import Disk


class DiskVerbs:
    """A part of the stage."""

    sim: ScenarioCluster
    _taken_out: dict[int, Disk]

    def do_wipe(self, machine: str, options: dict[str, str]) -> list[str]:
        self._taken_out[int(machine)] = self._replaced(int(machine), ({}, {}))
        self.sim.invariants.was_wiped(int(machine))
        return []

    def do_put_back(self, machine: str, options: dict[str, str]) -> list[str]:
        self._replaced(int(machine), self._taken_out.pop(int(machine)))
        return []

    def do_remove_table(self, machine: str, table: str, options: dict[str, str]) -> list[str]:
        disk = self.sim.hosts[int(machine)].disk
        removed = disk.tables.pop(table).commits
        if options.get("under-way") == "yes":
            newest = removed[max(removed)]
            assert newest is not None
            late = StoredCommit(replace(newest.commit, commit_id="late"), newest.commit.commit_id)
            disk.files_of(table).commits[max(removed) + 1] = late
        replica = replica_of(table)
        assert replica is not None
        self.sim.invariants.was_removed(int(machine), replica)
        return []

    def _replaced(self, broker_id: int, new: Disk) -> Disk:
        self.sim.kill_machines([broker_id])
        return self.sim.replace_disk(broker_id, new)
