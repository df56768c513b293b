# Databricks notebook source
"""A replicated log in one notebook: produce, lose a broker, and query everything with SQL."""

# COMMAND ----------
# MAGIC %md
# MAGIC # stratalog: a replicated log on Delta tables
# MAGIC Three brokers run in this notebook, each on a directory of its own. A topic's partition is a Delta table on each
# MAGIC of them; followers copy their leader with Structured Streaming. It runs as a plain script as well:
# MAGIC `python notebooks/01_quickstart.py`.

# COMMAND ----------
import shutil
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
from deltalake import DeltaTable

from stratalog import Admin, Cluster, Consumer, NewTopic, Producer

folder = Path(tempfile.mkdtemp(prefix="stratalog-quickstart-"))
session_was_given = "spark" in globals()
cluster = Cluster.start(folder, brokers=3, spark=globals().get("spark"))
spark = cluster.spark
assert spark is not None
print(cluster.describe())

# COMMAND ----------
# MAGIC %md
# MAGIC ## Produce
# MAGIC Three partitions, three replicas each; a record counts as written when at least two replicas have it.

# COMMAND ----------
admin = Admin(cluster)
admin.create_topics([NewTopic("orders", partitions=3, replication_factor=3, configs={"min.insync.replicas": 2})])
producer = Producer(cluster, acks="all")
sent = [producer.send("orders", key=f"customer-{n % 7}", value=f"order {n}") for n in range(100)]
written = [future.result(60) for future in sent]
print("the first record is at", written[0])

# COMMAND ----------
# MAGIC %md
# MAGIC ## Kill a broker while producing
# MAGIC One record at a time, so that the wait for the failover shows. The dead broker's session expires after nine
# MAGIC seconds; then the controller elects leaders among the replicas in sync. The cell first waits until all three
# MAGIC are: after a start, followers need a few seconds until they fetch.


# COMMAND ----------
def in_sync() -> list[int]:
    return [len(state.isr) for state in admin.describe_topics(["orders"])["orders"].partitions]


while min(in_sync()) < 3:
    time.sleep(0.2)
victim = admin.describe_topics(["orders"])["orders"].partitions[0].leader
table_of_metadata = f"{cluster.root}/__cluster_metadata-0"
version_before = DeltaTable(table_of_metadata).version()

seconds, latencies_ms = [], []
began = time.perf_counter()
killed_at = failed_over_at = 0.0
for n in range(100, 220):
    if n == 160:
        cluster.kill(victim)
        killed_at = time.perf_counter() - began
    before = time.perf_counter()
    producer.send("orders", f"order {n}", partition=0).result(60)
    seconds.append(time.perf_counter() - began)
    latencies_ms.append((time.perf_counter() - before) * 1000)
    if n == 160:
        failed_over_at = seconds[-1]
producer.close()
cluster.restart(victim)
print(f"broker {victim} was killed; the next record was acknowledged {failed_over_at - killed_at:.1f} s later")

# COMMAND ----------
# MAGIC %md
# MAGIC ## Consume
# MAGIC From the beginning: every record, each customer's in order.

# COMMAND ----------
consumer = Consumer(cluster, auto_offset_reset="earliest")
consumer.assign_all("orders")
records = []
while batch := consumer.poll(2000):
    records += batch
print(len(records), "records;", [r.value.decode() for r in records if r.key == b"customer-3"][:5])
assert sorted(int(r.value.split()[1]) for r in records) == list(range(220))

# COMMAND ----------
# MAGIC %md
# MAGIC ## SQL on a partition
# MAGIC A replica is a Delta table. The rows of a data file count from 0; the commit gives the file its base offset, as
# MAGIC a partition column.


# COMMAND ----------
def show(query: str) -> None:
    """As a table of the notebook, or as text."""
    frame = spark.sql(query)
    if "display" in globals():
        display(frame)
    else:
        frame.show(truncate=90)


show(f"""
    SELECT base_offset + offset_delta AS offset, leader_epoch, timestamp, string(key), string(value)
    FROM delta.`{folder}/broker-{victim}/orders-0` ORDER BY offset DESC LIMIT 5
""")

# COMMAND ----------
# MAGIC %md
# MAGIC Each record has its leader's epoch: those after the failover have the new leader's.

# COMMAND ----------
show(f"""
    SELECT leader_epoch, count(*) AS records, min(base_offset + offset_delta) AS first_offset
    FROM delta.`{folder}/broker-{victim}/orders-0` GROUP BY leader_epoch ORDER BY leader_epoch
""")

# COMMAND ----------
# MAGIC %md
# MAGIC ## The cluster's metadata is a log, too
# MAGIC The newest state of each partition is its newest record: now, and by time travel before the broker died.

# COMMAND ----------
for version in ("", f"VERSION AS OF {version_before}"):
    show(f"""
        SELECT key, state:leader, state:leader_epoch, state:isr FROM (
          SELECT string(key) AS key, max_by(parse_json(string(value)), base_offset + offset_delta) AS state
          FROM delta.`{table_of_metadata}` {version} GROUP BY key
        ) WHERE key LIKE 'partition/orders/%' ORDER BY key
    """)

# COMMAND ----------
# MAGIC %md
# MAGIC ## The failover as a picture

# COMMAND ----------
figure, axes = plt.subplots(figsize=(9, 3.5), layout="constrained")
axes.semilogy(seconds, latencies_ms, ".")
axes.axvspan(killed_at, failed_over_at, color="tab:red", alpha=0.15)
axes.set(xlabel="time [s]", ylabel="latency [ms]", title=f"acks=all, one record at a time; broker {victim} is killed")
if "display" in globals():
    display(figure)
else:
    figure.savefig(folder / "failover.png")

# COMMAND ----------
# MAGIC %md
# MAGIC ## Clean up

# COMMAND ----------
cluster.stop()
shutil.rmtree(folder)
if not session_was_given:
    spark.stop()
