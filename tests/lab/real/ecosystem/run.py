"""A table of Postgres as a Delta table, by Debezium and a typed table: `make ecosystem`.

    python -m tests.lab.real.ecosystem.run [--rounds 3] [--folder FOLDER]

A snapshot, rounds of inserts, updates and deletes, a kill -9 of the Connect worker in the middle of one. In envelope
form and unwrapped by ExtractNewRecordState, the typed table in upsert mode then has the rows of Postgres, and no dead
letter. I/O: Postgres, Kafka Connect, brokers and Spark on this machine.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from stratalog import Admin, NewTopic, TypedTable, stratalog_session
from tests.lab.foreign.served import Form, Served, free_ports
from tests.lab.real.ecosystem.programs import (
    DATABASE,
    HOST,
    USER,
    ConnectWorker,
    MissingProgramError,
    Postgres,
    fetch_jars,
)
from tests.waiting import wait_until

FORMS = {
    "envelope": (
        "after STRUCT<id: BIGINT, name: STRING, amount: STRING, at: BIGINT, active: BOOLEAN>, op STRING", "after."
    ),
    "unwrapped": ("id BIGINT, name STRING, amount STRING, at BIGINT, active BOOLEAN", ""),
}  # fmt: skip
"""Form -> the columns of its typed table, and where the row is in them."""
TABLE = """CREATE TABLE orders (id BIGINT PRIMARY KEY, name TEXT, amount NUMERIC(10, 2), at TIMESTAMP, active BOOLEAN);
ALTER TABLE orders REPLICA IDENTITY FULL;"""
SELECTED = """SELECT id, coalesce(name, '-'), coalesce(amount::text, '-'),
coalesce((extract(epoch from at) * 1000000)::bigint::text, '-'), coalesce(active::text, '-') FROM orders"""
NAMES = ("apples", "pears ünd", 'quoted "ones"', "null", "")
LAST = 1_000_000
"""The id of the first row that marks the end of a round."""
WAIT_S = 600


def connector(form: str, port: int) -> dict[str, str]:
    """The configuration of Debezium's connector."""
    unwrap = {"transforms": "unwrap", "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState"}
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "tasks.max": "1",
        "database.hostname": HOST, "database.port": str(port), "database.user": USER, "database.password": "unused",
        "database.dbname": DATABASE, "topic.prefix": form, "table.include.list": "public.orders",
        "plugin.name": "pgoutput", "slot.name": form, "publication.name": form, "decimal.handling.mode": "string",
        "exactly.once.support": "required", **(unwrap if form == "unwrapped" else {}),
    }  # fmt: skip


def changes(rng: random.Random, count: int, ids: list[int]) -> str:
    """Statements that change `count` rows; `ids` are those that exist."""
    statements = []
    for _ in range(count):
        choice = rng.random()
        name = rng.choice(NAMES).replace("'", "''")
        if choice < 0.45 or len(ids) < 10:
            ids.append(ids[-1] + 1 if ids else 1)
            at = f"timestamp '2024-03-10 02:30:00' + interval '{rng.randrange(10**6)} microseconds'"
            row = f"{ids[-1]}, '{name}', {rng.randrange(10**6) / 100}, {at}, {rng.random() < 0.5}"
            statements.append(f"INSERT INTO orders VALUES ({row})")
        elif choice < 0.75:
            value = rng.choice([f"name = '{name}'", "name = NULL", "amount = amount + 0.01", "active = NULL"])
            statements.append(f"UPDATE orders SET {value} WHERE id = {rng.choice(ids)}")
        else:
            statements.append(f"DELETE FROM orders WHERE id = {ids.pop(rng.randrange(len(ids) - 1))}")
    return ";\n".join(statements) + ";\n"


def run(folder: Path, rounds: int) -> list[str]:
    """What differs, form by form; empty if nothing does."""
    rng, ids = random.Random(1), list[int]()
    postgres_port, connect_port = free_ports(2)
    with ExitStack() as ends:
        postgres = ends.enter_context(Postgres(folder / "postgres", postgres_port))
        served = ends.enter_context(Served(Form.CLUSTER))
        topics = [NewTopic(f"{form}.public.orders", 2, 1, {"cleanup.policy": "compact"}) for form in FORMS]
        Admin(served.metadata_root).create_topics(topics)
        worker = ConnectWorker(folder / "connect", connect_port, served.bootstrap)
        ends.callback(worker.kill)
        postgres.sql(TABLE + changes(rng, 500, ids))
        worker.start()
        for form in FORMS:
            worker.create(form, connector(form, postgres_port))
        wait_until(lambda: list(worker.states()) == ["RUNNING"] * len(FORMS), "both connectors", timeout_s=WAIT_S)
        slots = "SELECT slot_name FROM pg_replication_slots"
        wait_until(lambda: len(postgres.sql(slots)) == len(FORMS), "replication slots", timeout_s=WAIT_S)
        for number in range(rounds):
            postgres.sql(changes(rng, 300, ids))
            if number == rounds // 2:
                worker.kill()
                print("killed the Connect worker", flush=True)
                postgres.sql(changes(rng, 300, ids))
                worker.start()
        postgres.sql(f"INSERT INTO orders (id) VALUES ({LAST})")
        return compared(served.metadata_root, folder, postgres)


def compared(root: str, folder: Path, postgres: Postgres) -> list[str]:
    """Runs the typed tables until they have the last row, and compares them with Postgres."""
    spark = stratalog_session("ecosystem")
    wanted = sorted(map(tuple, postgres.sql(SELECTED)))
    found = []
    for form, (columns, path) in FORMS.items():
        config = {"value.format": "json", "value.schema": columns, "write.mode": "upsert"}
        table = TypedTable(spark, root, f"{form}.public.orders", str(folder / form), config)
        names = [f"coalesce(string({path}{each}), '-')" for each in ("id", "name", "amount", "at", "active")]
        deadline = time.monotonic() + WAIT_S
        while True:
            state = table.run_available()
            frame = spark.read.format("delta").load(str(folder / form))
            rows = sorted(tuple(row) for row in frame.selectExpr(*names).collect())
            if (str(LAST), "-", "-", "-", "-") in rows or time.monotonic() > deadline:
                break
            time.sleep(2)
        difference = len(set(rows) ^ set(wanted)) + abs(len(rows) - len(wanted))
        print(f"{form}: {len(rows)} rows, Postgres {len(wanted)}, {difference} differ, "
              f"{state.dead_letter_count} dead letters {dict(state.dead_letters) or ''}", flush=True)  # fmt: skip
        if difference or state.dead_letter_count:
            found.append(form)
    spark.stop()
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=3, help="rounds of 300 changes")
    options.add_argument("--folder", type=Path, help="where data and logs stay; a temporary one if missing")
    given = options.parse_args()
    try:
        fetch_jars()
        with tempfile.TemporaryDirectory(prefix="ecosystem-") as made:
            Path(made).chmod(0o755)
            folder = given.folder or Path(made)
            folder.mkdir(parents=True, exist_ok=True)
            differing = run(folder.resolve(), given.rounds)
    except MissingProgramError as missing:
        sys.exit(f"make ecosystem: {missing}")
    sys.exit(f"not equal to Postgres: {', '.join(differing)}" if differing else 0)


if __name__ == "__main__":
    main()
