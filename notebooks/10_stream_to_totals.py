# Databricks notebook source
# MAGIC %md
# MAGIC # A stream becomes totals, and totals become a topic
# MAGIC Two queries share a group and clean orders, each batch in one transaction. A third query keeps totals by minute
# MAGIC in its state and writes each once, when it is final. The log may be on S3: then the session brings the secrets
# MAGIC along.

# COMMAND ----------
import json
import os
import shutil
import tempfile
from collections import Counter

import matplotlib.pyplot as plt
from pyspark.sql import functions as f

from stratalog import Admin, Cluster, ClusterView, GroupAdmin, LiveGroups, Producer, stratalog_session


def widget(name: str, default: str) -> str:
    """The value of a widget; the default where there is no Databricks."""
    if "dbutils" not in globals():
        return default
    dbutils.widgets.text(name, default)
    return str(dbutils.widgets.get(name))


minutes = int(widget("minutes", "6"))
folder = tempfile.mkdtemp(prefix="stratalog-totals-")
place = widget("place", folder)  # or s3://bucket/prefix

# COMMAND ----------
# Brokers of this process take the secrets of a bucket from the environment; Spark's tasks, which may run on other
# machines, take them from the query's options. Neither shows in plans, logs or errors.
store = {}
if place.startswith("s3://"):
    for name in ("aws.endpoint.url", "aws.region", "aws.access.key.id", "aws.secret.access.key"):
        variable = name.upper().replace(".", "_")
        if "dbutils" in globals():
            os.environ[variable] = dbutils.secrets.get(scope="stratalog", key=name)
        store[f"stratalog.storage.{name}"] = os.environ[variable]
spark = stratalog_session("totals")
cluster = Cluster.start(place, brokers=3, fetcher="thread", config={"offsets.topic.num.partitions": 3})
for topic, partitions in (("orders", 6), ("clean", 3), ("totals", 1)):
    topic_id = Admin(cluster).create_topic(topic, partitions=partitions, replication_factor=3)

# COMMAND ----------
# MAGIC %md
# MAGIC ## Two queries share the partitions
# MAGIC They keep no state, so a partition may move from one to the other. What a batch writes and the group's offsets
# MAGIC are one transaction: each order is cleaned once, also when a query dies.


# COMMAND ----------
def read(topic: str, **options: str):
    given = {"stratalog.root": cluster.root, "subscribe": topic, "kafka.isolation.level": "read_committed"}
    return spark.readStream.format("stratalog").options(**given, **options, **store).load()


def write(frame, name: str, topic: str):
    given = {"stratalog.root": cluster.root, "topic": topic, "kafka.transactional.id": name}
    query = frame.writeStream.format("stratalog").queryName(name).options(**given, **store)
    return query.option("checkpointLocation", f"{folder}/{name}").trigger(processingTime="1 second").start()


ORDER = "item STRING, amount INT, at TIMESTAMP"
shared = {"kafka.group.id": "cleaners", "stratalog.group.mode": "share", "stratalog.auto.offset.reset": "earliest"}
order = f.from_json(f.col("value").cast("string"), ORDER).alias("order")
valid = read("orders", **shared).select("key", order).where("order.item IS NOT NULL AND order.amount > 0")
clean = valid.select("key", f.to_json("order").alias("value"))
queries = [write(clean, f"cleaner-{n}", "clean") for n in (1, 2)]

# COMMAND ----------
# The third query is alone in reading `clean`. Its state has the minutes that are not over; one that is over, by the
# watermark, is a record of `totals`.
orders = read("clean", startingOffsets="earliest").select(order).select("order.*")
by_minute = orders.withWatermark("at", "1 minute").groupBy(f.window("at", "1 minute"), "item")
totals = by_minute.agg(f.sum("amount").alias("total")).select(
    f.col("item").alias("key"), f.to_json(f.struct("window.start", "item", "total")).alias("value")
)
queries.append(write(totals, "totals", "totals"))

# COMMAND ----------
# Orders of some minutes, each sixth of them spoilt. The last one, much later, ends the minutes before it.
view = ClusterView(cluster.root)
groups = GroupAdmin(LiveGroups(cluster, view.clock, 30_000), view)
expected = Counter()
with Producer(cluster) as producer:
    for n in range(60 * minutes):
        item, amount, minute = ("apples", "pears", "plums")[n % 3], n % 7 + 1, n // 60
        at = f"2026-05-01T12:{minute:02}:{n % 60:02}Z"
        is_spoilt = n % 6 == 5
        value = "not an order" if is_spoilt else json.dumps({"item": item, "amount": amount, "at": at})
        producer.send("orders", value, key=f"customer {n % 17}")
        expected[minute, item] += 0 if is_spoilt else amount
    producer.send("orders", json.dumps({"item": "none", "amount": 1, "at": "2026-05-01T13:00:00Z"}))


def stored() -> dict:
    options = {"stratalog.root": cluster.root, "subscribe": "totals", "kafka.isolation.level": "read_committed"}
    rows = spark.read.format("stratalog").options(**options, **store).load().selectExpr("string(value)").collect()
    found = [json.loads(row.value) for row in rows]
    assert len(found) == len({(each["start"], each["item"]) for each in found})  # each total once
    return {(int(each["start"][14:16]), each["item"]): each["total"] for each in found}


while len(stored()) < len(expected):
    for query in queries:
        query.awaitTermination(2)  # a query that failed raises its error here
assert stored() == expected
members = groups.describe_group("cleaners").members
print("partitions of the cleaners:", *(sorted(tp.partition for tp in member.assignment) for member in members))
print(f"{len(expected)} totals, each equal to what was sent")

# COMMAND ----------
figure, axes = plt.subplots(figsize=(9, 2.8), layout="constrained")
for place_in_minute, item in enumerate(("apples", "pears", "plums")):
    heights = [stored()[minute, item] for minute in range(minutes)]
    axes.bar([minute + 0.27 * place_in_minute for minute in range(minutes)], heights, 0.25, label=item)
axes.set(xlabel="minute", ylabel="amount", title="totals, read from the topic")
axes.legend()
display(figure) if "display" in globals() else None

# COMMAND ----------
for query in queries:
    query.stop()
spark.stop() if "dbutils" not in globals() else None
cluster.stop()
shutil.rmtree(folder)
