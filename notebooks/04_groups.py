# Databricks notebook source
# MAGIC %md
# MAGIC # Groups: consumers share a topic
# MAGIC The members of a group share the partitions of a topic. One leaves, another joins, and partitions move;
# MAGIC committed offsets say where the next owner goes on. Group state is in `__consumer_offsets`, in Kafka's own
# MAGIC records.

# COMMAND ----------
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
from pyspark.sql import functions as f

from stratalog import (
    Admin,
    Cluster,
    ClusterView,
    Consumer,
    GroupAdmin,
    LiveGroups,
    Producer,
    StoredGroups,
    stratalog_session,
)


def widget(name: str, default: str) -> str:
    """The value of a widget; the default where there is no Databricks."""
    if "dbutils" not in globals():
        return default
    dbutils.widgets.text(name, default)
    return str(dbutils.widgets.get(name))


partitions = int(widget("partitions", "6"))
folder = Path(tempfile.mkdtemp(prefix="stratalog-groups-"))
cluster = Cluster.start(folder, brokers=3, fetcher="thread")
admin = Admin(cluster)
topic_id = admin.create_topic("visits", partitions=partitions, replication_factor=3)
producer = Producer(cluster)

# COMMAND ----------
# A round: new records arrive, every member polls and commits. `owners` notes who has which partition.
members: dict[str, Consumer] = {}
owners: list[dict[int, str]] = []
consumed: Counter = Counter()


def join(name: str) -> None:
    consumer = Consumer(cluster, group_id="counters", client_id=name, auto_offset_reset="earliest")
    consumer.subscribe(["visits"])
    members[name] = consumer


def one_round(number: int) -> None:
    for n in range(60):
        producer.send("visits", key=f"user-{n}", value=f"{number}:{n}")
    producer.flush()
    for name, consumer in members.items():
        consumed[name] += len(consumer.poll(timeout_ms=300))
        consumer.commit_sync()
    owners.append({tp.partition: name for name, each in members.items() for tp in each.assignment()})


# COMMAND ----------
# Two members, a third joins, the first one leaves. A round ends when nobody waits for a rebalance any more.
def rounds(count: int) -> None:
    settled = 0
    while settled < count:
        one_round(len(owners))
        settled += len(owners[-1]) == partitions and len(set(owners[-1].values())) == len(members)


join("ann")
join("bob")
rounds(4)
join("cleo")
rounds(4)
members.pop("ann").close()
rounds(4)
print({name: sorted(p for p, owner in owners[-1].items() if owner == name) for name in members})

# COMMAND ----------
# MAGIC %md
# MAGIC While a rebalance is under way, a partition has no owner: the white squares. Each member polls to take part in
# MAGIC it; a member that does not poll within `max.poll.interval.ms` is put out of the group.

# COMMAND ----------
names = sorted({name for each in owners for name in each.values()})
grid = [[names.index(each[p]) if p in each else float("nan") for each in owners] for p in range(partitions)]
figure, axes = plt.subplots(figsize=(9, 2.8), layout="constrained")
axes.imshow(grid, aspect="auto", cmap="Set2", vmin=0, vmax=7, interpolation="none")
for place, name in enumerate(names):
    axes.plot([], [], "s", color=plt.cm.Set2(place / 7), label=name)
axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
axes.set(xlabel="round", ylabel="partition", title="owner of each partition")
display(figure) if "display" in globals() else None

# COMMAND ----------
# How far the group is behind: from storage alone, so also when no broker runs.
view = ClusterView(cluster.root)
lag = GroupAdmin(StoredGroups(view), view).lag("counters")
for each in lag.partitions:
    print(f"partition {each.topic_partition.partition}: committed {each.committed_offset}, lag {each.lag}")
print("lag:", lag.total)

# COMMAND ----------
# The rest is read; then every record was read once, whoever read it.
while sum(consumed.values()) < 60 * len(owners):
    for name, consumer in members.items():
        consumed[name] += len(consumer.poll(timeout_ms=300))
assert sum(consumed.values()) == 60 * len(owners)
print(dict(consumed), "of", 60 * len(owners), "records")

# COMMAND ----------
# MAGIC %md
# MAGIC ## Two streaming queries are a group, too
# MAGIC The same query runs twice, with a checkpoint each. The group gives each a part of the partitions, and each
# MAGIC micro-batch reads the part that its query has then. The queries keep no state, which could not move with a
# MAGIC partition: they write rows, and rows are counted afterwards.

# COMMAND ----------
spark = stratalog_session("groups")
table = str(folder / "seen")
spark.createDataFrame([], "partition int, offset bigint, query string").write.format("delta").save(table)
groups = GroupAdmin(LiveGroups(cluster, view.clock, 30_000), view)


def start(name: str):
    source = spark.readStream.format("stratalog").option("stratalog.root", cluster.root).option("subscribe", "visits")
    group = {"kafka.group.id": "screens", "stratalog.group.mode": "share", "stratalog.auto.offset.reset": "earliest"}
    rows = source.options(**group).load().select("partition", "offset", f.lit(name).alias("query"))
    query = rows.writeStream.format("delta").queryName(name).trigger(processingTime="1 second")
    return query.option("checkpointLocation", str(folder / name)).start(table)


def shares() -> list[list[int]]:
    members = groups.describe_group("screens").members
    return sorted(sorted(tp.partition for tp in member.assignment) for member in members)


def wait_for(is_so, *queries) -> None:
    while not is_so():
        for query in queries:
            query.awaitTermination(1)  # a query that failed raises its error here


left, right = start("left"), start("right")
wait_for(lambda: len(shares()) == 2 and all(shares()), left, right)
print("partitions of the two queries:", *shares())
one_round(len(owners))
wait_for(lambda: groups.lag("screens").total == 0, left, right)

# COMMAND ----------
# One is stopped, more records arrive: the other one has all partitions, and reads on where the first one stopped.
left.stop()
one_round(len(owners))
wait_for(lambda: len(shares()) == 1 and groups.lag("screens").total == 0, right)
right.stop()
seen = spark.read.format("delta").load(table)
seen.groupBy("query").agg(f.countDistinct("partition").alias("partitions"), f.count("*").alias("rows")).show()
assert seen.dropDuplicates(["partition", "offset"]).count() == 60 * len(owners)
assert seen.select("query").distinct().count() == 2

# COMMAND ----------
for consumer in members.values():
    consumer.close()
producer.close()
spark.stop() if "dbutils" not in globals() else None
cluster.stop()
shutil.rmtree(folder)
