# Databricks notebook source
# MAGIC %md
# MAGIC # Exactly once: read, process, write, and crash in between
# MAGIC A worker reads orders in a group, writes bills and commits the group's offsets, in one transaction each. It
# MAGIC crashes again and again, at the worst moment: after it wrote, before it committed. In the end each order has
# MAGIC one bill.

# COMMAND ----------
import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt

from stratalog import Admin, Cluster, Consumer, OffsetAndMetadata, Producer


def widget(name: str, default: str) -> str:
    """The value of a widget; the default where there is no Databricks."""
    if "dbutils" not in globals():
        return default
    dbutils.widgets.text(name, default)
    return str(dbutils.widgets.get(name))


orders = int(widget("orders", "200"))
chance = random.Random(int(widget("seed", "7")))
folder = Path(tempfile.mkdtemp(prefix="stratalog-exactly-once-"))
cluster = Cluster.start(folder, brokers=3, fetcher="thread")
for topic in ("orders", "bills"):
    topic_id = Admin(cluster).create_topic(topic, partitions=1, replication_factor=3, min_insync_replicas=2)
with Producer(cluster) as producer:
    for n in range(orders):
        producer.send("orders", f"order {n}")


# COMMAND ----------
# A worker's life: `init_transactions` fences its predecessor and ends what that one left open. A crash is a process
# that stops in the middle: neither commit nor abort, no goodbye.
def work(transactions_max: int, *, crashes: bool) -> int:
    """Bill up to so many batches; how many were committed."""
    reader = Consumer(
        cluster,
        group_id="billing",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_auto_commit=False,
        max_poll_records=20,
    )
    reader.assign_all("orders")
    bills = Producer(cluster, transactional_id="billing-1")
    bills.init_transactions()
    for done in range(transactions_max):
        records = reader.poll(timeout_ms=2000)
        if not records:
            return done
        bills.begin_transaction()
        for record in records:
            bills.send("bills", key=record.value, value=b"bill for " + record.value)
        bills.flush()
        if crashes and done == transactions_max - 1:
            return done
        offsets = {tp: OffsetAndMetadata(reader.position(tp)) for tp in reader.assignment()}
        bills.send_offsets_to_transaction(offsets, reader.group_metadata())
        bills.commit_transaction()
    return transactions_max


# COMMAND ----------
lives = 0
while True:
    lives += 1
    crashes = lives <= 5
    done = work(chance.randint(2, 4) if crashes else 1000, crashes=crashes)
    print(f"life {lives}: {done} transactions committed" + (", then a crash with bills written" if crashes else ""))
    if not crashes:
        break

# COMMAND ----------
# MAGIC %md
# MAGIC ## Two readers of one log
# MAGIC A reader of uncommitted records meets every bill that was ever written. A `read_committed` reader is given
# MAGIC those of committed transactions only, and reads up to the last stable offset.


# COMMAND ----------
def read_bills(isolation_level: str) -> list:
    with Consumer(cluster, auto_offset_reset="earliest", isolation_level=isolation_level) as consumer:
        consumer.assign_all("bills")
        found = []
        while batch := consumer.poll(timeout_ms=2000):
            found += batch
        return found


written, committed = read_bills("read_uncommitted"), read_bills("read_committed")
twice = [key for key, count in Counter(record.key for record in written).items() if count > 1]
assert sorted(record.key for record in committed) == sorted(f"order {n}".encode() for n in range(orders))
print(f"{len(written)} bills written, {len(twice)} orders more than once; {len(committed)} committed, each once")

# COMMAND ----------
figure, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
kept = {record.offset for record in committed}
for label, chosen in (("aborted", [r for r in written if r.offset not in kept]), ("committed", committed)):
    numbers = [int(record.value.split()[-1]) for record in chosen]
    axes.plot([record.offset for record in chosen], numbers, ".", markersize=4, label=label)
axes.set(xlabel="offset in bills", ylabel="order", title="every bill that was written")
axes.legend()
display(figure) if "display" in globals() else None

# COMMAND ----------
cluster.stop()
shutil.rmtree(folder)
