# Databricks notebook source
# MAGIC %md
# MAGIC # Failover: a leader is killed while records arrive
# MAGIC Three brokers run in this notebook, each with a directory of its own. One partition has three replicas, and a
# MAGIC record counts as written when at least two have it (`acks=all`, `min.insync.replicas=2`). The leader dies in
# MAGIC the middle. Which records are there in the end?

# COMMAND ----------
import shutil
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt

from stratalog import Admin, Cluster, Consumer, Producer, TopicPartition


def widget(name: str, default: str) -> str:
    """The value of a widget; the default where there is no Databricks."""
    if "dbutils" not in globals():
        return default
    dbutils.widgets.text(name, default)
    return str(dbutils.widgets.get(name))


records = int(widget("records", "240"))
folder = Path(tempfile.mkdtemp(prefix="stratalog-failover-"))
cluster = Cluster.start(folder, brokers=3, fetcher="thread")  # threads copy: this story needs no Spark
admin = Admin(cluster)
topic_id = admin.create_topic("payments", partitions=1, replication_factor=3, min_insync_replicas=2)


# COMMAND ----------
# The cluster before: a leader, and all three replicas in sync.
def state():
    return admin.describe_topics(["payments"])["payments"].partitions[0]


while len(state().isr) < 3:
    time.sleep(0.1)
before = state()
print(f"leader {before.leader} in epoch {before.leader_epoch}, in sync: {sorted(before.isr)}")

# COMMAND ----------
# One record at a time, so that each wait shows. At a third of them the leader is killed: nothing is flushed, no
# leadership is handed over. The producer retries by itself; the application only waits.
seconds, waits_ms = [], []
began = time.perf_counter()
killed_at = 0.0
with Producer(cluster, acks="all") as producer:
    for n in range(records):
        if n == records // 3:
            cluster.kill(before.leader)
            killed_at = time.perf_counter() - began
        sent_at = time.perf_counter()
        producer.send("payments", f"payment {n}").result(120)
        seconds.append(sent_at - began)
        waits_ms.append((time.perf_counter() - sent_at) * 1000)
        time.sleep(0.02)
after = state()
print(f"broker {before.leader} was killed; the record after it waited {max(waits_ms) / 1000:.1f} s")
print(f"leader {after.leader} in epoch {after.leader_epoch}, in sync: {sorted(after.isr)}")

# COMMAND ----------
# MAGIC %md
# MAGIC The wait is the session of the dead broker: `broker.session.timeout.ms`, 9 s. Other brokers see that its
# MAGIC session object does not change, on their own clocks. Then the controller elects a leader among the replicas in
# MAGIC sync, in one commit, and the new leader begins a leader epoch in its own table.

# COMMAND ----------
figure, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
axes.semilogy(seconds, waits_ms, ".", markersize=4)
axes.axvline(killed_at, color="tab:red", linewidth=1)
axes.annotate(" killed", (killed_at, max(waits_ms)), color="tab:red", va="top")
axes.set(xlabel="seconds", ylabel="wait for acks=all [ms]", title="each record's acknowledgement")
display(figure) if "display" in globals() else None

# COMMAND ----------
# The dead broker comes back. It may have records that nobody acknowledged; it truncates to where both logs agree,
# copies the rest and joins the replicas in sync.
cluster.restart(before.leader)
while len(state().isr) < 3:
    time.sleep(0.1)
print("in sync:", sorted(state().isr))

# COMMAND ----------
# What is there: every record, once, in order, also those that were on their way when the leader died.
with Consumer(cluster, auto_offset_reset="earliest") as consumer:
    consumer.assign_all("payments")
    read = []
    while batch := consumer.poll(timeout_ms=2000):
        read += [record.value.decode() for record in batch]
assert read == [f"payment {n}" for n in range(records)]
print(len(read), "records, each once, in order")

# COMMAND ----------
# Who led when? The metadata log's history knows, without a broker.
for offset in (0, records - 1):
    answer = admin.who_led(TopicPartition("payments", 0), offset)
    print(f"offset {offset}: written under leader {answer.leader} in epoch {answer.leader_epoch}")

# COMMAND ----------
cluster.stop()
shutil.rmtree(folder)
