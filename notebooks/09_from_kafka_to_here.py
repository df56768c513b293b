# Databricks notebook source
# MAGIC %md
# MAGIC # From Kafka to here: an application moves and does not notice
# MAGIC A billing application uses a Kafka client, here kafka-python. Its topic moves from one cluster to another with
# MAGIC all records, their offsets and the group's position. The application gets another address and goes on where it
# MAGIC was.
# MAGIC
# MAGIC The old cluster is any Kafka: give its address to the widget. Without one, a second stratalog cluster plays
# MAGIC the part.

# COMMAND ----------
# MAGIC %pip install "kafka-python>=3.0.12,<3.1"

# COMMAND ----------
import shutil
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPartition

from stratalog import Admin, Cluster, ClusterView, GroupAdmin, LiveGroups, OffsetAndMetadata, Producer, TopicPartition


def widget(name: str, default: str) -> str:
    """The value of a widget; the default where there is no Databricks."""
    if "dbutils" not in globals():
        return default
    dbutils.widgets.text(name, default)
    return str(dbutils.widgets.get(name))


folder = Path(tempfile.mkdtemp(prefix="stratalog-from-kafka-"))
listeners = {"listeners": "PLAINTEXT://localhost:0"}
old = None
address = widget("bootstrap_servers", "")
if not address:
    old = Cluster.start(folder / "old", brokers=1, fetcher="thread", config={
        **listeners, "offsets.topic.replication.factor": 1})  # fmt: skip
    address = old.bootstrap_servers
    topic_id = Admin(old).create_topic("orders", partitions=2, replication_factor=1)
with KafkaProducer(bootstrap_servers=address.split(",")) as orders:
    for n in range(200):
        sent = orders.send("orders", key=b"customer %d" % (n % 7), value=b"order %d" % n)


# COMMAND ----------
# The application. It reads up to `count` records, bills them and commits; nothing in it is ours.
def bill(bootstrap_servers: str, count: int) -> list[tuple[int, int]]:
    consumer = KafkaConsumer(
        "orders", bootstrap_servers=bootstrap_servers.split(","), group_id="billing", auto_offset_reset="earliest",
        enable_auto_commit=False, max_poll_records=10,
    )  # fmt: skip
    billed = []
    while len(billed) < count:
        for records in consumer.poll(timeout_ms=1000).values():
            billed += [(record.partition, record.offset) for record in records]
        consumer.commit()
    consumer.close()
    return billed


at_the_old = bill(address, 80)
print(len(at_the_old), "orders billed at the old cluster")

# COMMAND ----------
# MAGIC %md
# MAGIC ## The move
# MAGIC Records are appended in the order of each partition, so they get the offsets that they had, as long as the old
# MAGIC log begins at 0 and has no gaps. Then the group's offsets follow.

# COMMAND ----------
new = Cluster.start(folder / "new", brokers=3, fetcher="thread", config=listeners)
topic_id = Admin(new).create_topic("orders", partitions=2, replication_factor=3, min_insync_replicas=2)
reader = KafkaConsumer(bootstrap_servers=address.split(","), group_id="billing", enable_auto_commit=False)
parts = [KafkaPartition("orders", partition) for partition in (0, 1)]
reader.assign(parts)
committed = {part.partition: reader.committed(part) or 0 for part in parts}
reader.seek_to_beginning(*parts)
ends = reader.end_offsets(parts)
moved = []
with Producer(new, acks="all") as producer:
    while any(reader.position(part) < ends[part] for part in parts):
        for records in reader.poll(timeout_ms=1000).values():
            moved += [
                (r.offset, producer.send("orders", r.value, key=r.key, partition=r.partition, timestamp_ms=r.timestamp))
                for r in records
            ]
reader.close()
assert all(future.result(30).offset == offset for offset, future in moved)
print(len(moved), "records moved, each to the offset it had")

# COMMAND ----------
view = ClusterView(new)
groups = GroupAdmin(LiveGroups(new, view.clock, 30_000), view)
groups.alter_offsets(
    "billing", {TopicPartition("orders", p): OffsetAndMetadata(offset) for p, offset in committed.items()}
)
print({each.topic_partition.partition: each.committed_offset for each in groups.lag("billing").partitions})

# COMMAND ----------
# The same application at the new address.
at_the_new = bill(new.bootstrap_servers, 120)
assert sorted(at_the_old + at_the_new) == sorted((p.partition, o) for p in parts for o in range(ends[p]))
print(len(at_the_new), "orders billed at the new cluster: none twice, none left out")

# COMMAND ----------
figure, axes = plt.subplots(figsize=(9, 2.6), layout="constrained")
for label, billed in (("billed at the old cluster", at_the_old), ("billed at the new one", at_the_new)):
    axes.plot([offset for _, offset in billed], [partition for partition, _ in billed], "|", markersize=16, label=label)
axes.set(xlabel="offset", ylabel="partition", yticks=[0, 1], ylim=(-0.6, 1.6))
axes.legend(loc="upper center", ncols=2)
display(figure) if "display" in globals() else None

# COMMAND ----------
for each in filter(None, (old, new)):
    each.stop()
shutil.rmtree(folder)
