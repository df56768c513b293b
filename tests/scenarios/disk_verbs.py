"""The commands of a scenario that change what is on a machine's disk.

wipe 2                              machine 2 stops, and its disk is replaced by an empty one
put-back 2                          machine 2 stops, and the disk before the last `wipe` is in it again
remove-table 2 t-0                  somebody removes the directory of one replica
remove-table 2 t-0 under-way=yes    meanwhile a commit is under way, which arrives afterwards, and whose writer dies
damage 2 t-0                        something is noted as damaged in the table of one replica
hold-create 2 t-0                   the next request that makes the table of a replica is held on its way
release-create 2 t-0                it arrives, and its sender continues, also where fetching is stopped
"""

from __future__ import annotations

from dataclasses import replace

from stratalog.replication.folders import replica_of
from stratalog.storage.delta.commit_race import StoredCommit
from stratalog.storage.files.damage import DAMAGE_PATH, Damage
from tests.scenarios.scenario_cluster import FOR_EVER_MS, ScenarioCluster
from tests.simulation.cluster import Disk
from tests.simulation.scheduler import Actor

FIRST_COMMIT = "_delta_log/0"


class DiskVerbs:
    """A part of the stage."""

    sim: ScenarioCluster
    _taken_out: dict[int, Disk]
    _held_creates: dict[str, Actor]

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

    def do_damage(self, machine: str, table: str, options: dict[str, str]) -> list[str]:
        files = self.sim.hosts[int(machine)].disk.tables[table]
        files.objects.setdefault(DAMAGE_PATH, Damage("a commit decayed").to_json())
        return []

    def do_hold_create(self, machine: str, table: str, options: dict[str, str]) -> list[str]:
        disk, scheduler = self.sim.hosts[int(machine)].disk, self.sim.scheduler
        pass_on = disk.access

        def access(operation: str, name: str, detail: str) -> None:
            if (operation, name, detail) == ("create", table, FIRST_COMMIT) and scheduler.current is not None:
                disk.access = pass_on
                self._held_creates[table] = scheduler.current
                scheduler.sleep(FOR_EVER_MS)
            pass_on(operation, name, detail)

        disk.access = access
        return []

    def do_release_create(self, machine: str, table: str, options: dict[str, str]) -> list[str]:
        actor = self._held_creates.pop(table)
        self.sim.scheduler.wake(actor)
        self.sim.scheduler.resume(actor.host)
        return []

    def _replaced(self, broker_id: int, new: Disk) -> Disk:
        self.sim.kill_machines([broker_id])
        return self.sim.replace_disk(broker_id, new)
