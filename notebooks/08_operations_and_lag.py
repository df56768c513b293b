# Databricks notebook source
# MAGIC %md
# MAGIC # Operations: what to watch, and what it looks like when a broker is gone
# MAGIC A group reads more slowly than records arrive, and a broker dies. Lag, in-sync replicas and metrics show both.
# MAGIC All of it is read from storage or from metrics; no broker has to answer.

# COMMAND ----------
import shutil
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt

from stratalog import (
    Admin,
    Cluster,
    ClusterView,
    Consumer,
    GroupAdmin,
    OffsetSpec,
    Producer,
    StoredGroups,
    TopicPartition,
)


def widget(name: str, default: str) -> str:
    """The value of a widget; the default where there is no Databricks."""
    if "dbutils" not in globals():
        return default
    dbutils.widgets.text(name, default)
    return str(dbutils.widgets.get(name))


seconds = int(widget("seconds", "40"))
folder = Path(tempfile.mkdtemp(prefix="stratalog-operations-"))
cluster = Cluster.start(folder, brokers=3, fetcher="thread")
admin = Admin(cluster)
topic_id = admin.create_topic("events", partitions=3, replication_factor=3, min_insync_replicas=2)
print(cluster.describe())

# COMMAND ----------
# The state of the topic as any process sees it that reaches the metadata root.
view = ClusterView(cluster.root)


def lag() -> int:
    view.refresh()
    return GroupAdmin(StoredGroups(view), view).lag("slow").total  # reads the group's offsets once


def in_sync() -> int:
    return sum(len(each.isr) for each in admin.describe_topics(["events"])["events"].partitions)


while in_sync() < 9:
    time.sleep(0.1)
for each in admin.describe_topics(["events"])["events"].partitions:
    print(f"partition {each.partition}: leader {each.leader}, in sync {sorted(each.isr)}")


# COMMAND ----------
# MAGIC %md
# MAGIC ## A minute of a bad day
# MAGIC The producer sends 100 records a round, the consumer takes at most 60. After a quarter of the time broker 2
# MAGIC dies. When its session is over (9 s), it is no longer in sync. After three quarters it is back; then the
# MAGIC producer stops and the group catches up.

# COMMAND ----------
producer = Producer(cluster, acks="all")
consumer = Consumer(cluster, group_id="slow", auto_offset_reset="earliest", max_poll_records=60)
consumer.subscribe(["events"])
times, lags, replicas, events = [], [], [], {}
began, sent = time.monotonic(), 0
while (now := time.monotonic() - began) < seconds or (lags and lags[-1] > 0):
    if now < seconds:
        for n in range(100):
            producer.send("events", key=f"key {n}", value=f"event {sent + n}")
        sent += 100
    if now > seconds / 4 and "broker 2 dies" not in events:
        cluster.kill(2)
        events["broker 2 dies"] = now
    if now > 3 * seconds / 4 and "it is back" not in events:
        cluster.restart(2)
        events["it is back"] = now
    if now > seconds:
        events.setdefault("nothing more arrives", now)
    consumer.poll(timeout_ms=100)
    consumer.commit_sync()
    times.append(time.monotonic() - began)
    lags.append(lag())
    replicas.append(in_sync())
    time.sleep(0.05)
producer.close()
print(f"{sent} records sent, the lag was {max(lags)} at most and is {lags[-1]}")

# COMMAND ----------
figure, (upper, lower) = plt.subplots(2, 1, figsize=(9, 4.2), sharex=True, layout="constrained")
upper.plot(times, lags)
upper.set(ylabel="lag [records]", title="group `slow`")
lower.step(times, replicas, where="post", color="tab:green")
lower.set(ylabel="in-sync replicas", xlabel="seconds", ylim=(0, 9.5))
for name, at in events.items():
    for axes in (upper, lower):
        axes.axvline(at, color="tab:red", linewidth=1, alpha=0.6)
    lower.annotate(f" {name}", (at, 0.5), color="tab:red", fontsize=8)
display(figure) if "display" in globals() else None

# COMMAND ----------
# Metrics have Kafka's names; here those of broker 1 alone. `stratalog.metrics.port` serves them to Prometheus.
watched = ("underreplicatedpartitions", "offlinereplicacount", "isrshrinks", "isrexpands", "messagesin")
for metric in cluster.metrics()[1]:
    if any(word in metric.name for word in watched):
        total = metric.values[()]  # of all topics
        print(f"{total:>8.0f}  {metric.name}")

# COMMAND ----------
# The replicas are back, and each partition's log ends where its leader says; leaders moved when broker 2 died.
while in_sync() < 9:
    time.sleep(0.1)
for each in admin.describe_topics(["events"])["events"].partitions:
    place = TopicPartition("events", each.partition)
    end = admin.list_offsets({place: OffsetSpec.latest()})[place].offset
    first, now = admin.who_led(place, 0).leader, f"{each.leader} in epoch {each.leader_epoch}"
    print(f"partition {each.partition}: led by {first} at first, now by {now}; it ends at {end}")

# COMMAND ----------
consumer.close()
cluster.stop()
shutil.rmtree(folder)
