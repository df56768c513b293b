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

from stratalog import Admin, Cluster, ClusterView, Consumer, GroupAdmin, Producer, StoredGroups


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
for consumer in members.values():
    consumer.close()
producer.close()
cluster.stop()
shutil.rmtree(folder)
