# Databricks notebook source
# MAGIC %md
# MAGIC # stratalog: a replicated log on Delta tables
# MAGIC Three brokers run in this notebook, each on a directory of its own. A topic's partition is a Delta table on
# MAGIC each of them, which Structured Streaming copies from its leader. It runs as a plain script as well:
# MAGIC `python notebooks/01_quickstart.py`. With `fetcher="thread"` threads copy, and no Spark session is needed.

# COMMAND ----------
import json
import shutil
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from deltalake import DeltaTable

from stratalog import Admin, Cluster, Consumer, Producer, stratalog_session


def widget(name: str, default: str) -> str:
    """The value of a widget; the default where there is no Databricks."""
    if "dbutils" not in globals():
        return default
    dbutils.widgets.text(name, default)
    return str(dbutils.widgets.get(name))


records = int(widget("records", "200"))
folder = Path(tempfile.mkdtemp(prefix="stratalog-quickstart-"))
spark = stratalog_session("quickstart", fetch_slots=6)  # the session of the notebook, if there is one
cluster = Cluster.start(folder, brokers=3, spark=spark)
print(cluster.describe())

# COMMAND ----------
# MAGIC %md
# MAGIC ## Produce
# MAGIC Three partitions, three replicas each; a record counts as written when at least two replicas have it.

# COMMAND ----------
topic_id = Admin(cluster).create_topic("orders", partitions=3, replication_factor=3, min_insync_replicas=2)
with Producer(cluster, acks="all") as producer:
    sent = [producer.send("orders", key=f"customer-{n % 7}", value=f"order {n}") for n in range(records)]
    written = [future.result(60) for future in sent]
print("the first record is at", written[0])

# COMMAND ----------
# Consume from the beginning: every record, each customer's in order.
with Consumer(cluster, auto_offset_reset="earliest") as consumer:
    consumer.assign_all("orders")
    read = []
    while batch := consumer.poll(timeout_ms=2000):
        read += batch
print(len(read), "records;", [record.value.decode() for record in read if record.key == b"customer-3"][:5])
assert sorted(int(record.value.split()[1]) for record in read) == list(range(records))

# COMMAND ----------
# Spark reads the topic as `format("stratalog")`, with the columns and options of its Kafka source.
topic = spark.read.format("stratalog").option("stratalog.root", cluster.root).option("subscribe", "orders").load()
topic.groupBy("partition").count().orderBy("partition")

# COMMAND ----------
# A key's records are in one partition, in the order in which they were sent.
figure, axes = plt.subplots(figsize=(9, 3), layout="constrained")
for partition in range(3):
    here = [record for record in read if record.partition == partition]
    axes.plot(
        [int(r.value.split()[1]) for r in here], [r.key.decode() for r in here], ".", label=f"partition {partition}"
    )
axes.set(xlabel="order", title="which partition has which order")
axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
display(figure) if "display" in globals() else None

# COMMAND ----------
# MAGIC %md
# MAGIC ## The tables below
# MAGIC A replica is a Delta table, and the cluster's metadata is a log in a table, too: any engine that reads Delta
# MAGIC reads both.

# COMMAND ----------
for broker in (1, 2, 3):
    rows = DeltaTable(str(folder / f"broker-{broker}" / "orders-0")).to_pyarrow_table(columns=["value"]).num_rows
    print(f"broker {broker} has {rows} records of partition 0")
metadata = DeltaTable(f"{cluster.root}/__cluster_metadata-0").to_pandas(columns=["key", "value"])
for key, value in zip(metadata.key, metadata.value, strict=True):
    if key.startswith(b"partition/orders/"):
        state = json.loads(value)
        print(key.decode(), {name: state[name] for name in ("leader", "leader_epoch", "isr")})

# COMMAND ----------
cluster.stop()
shutil.rmtree(folder)
