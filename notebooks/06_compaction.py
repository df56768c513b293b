# Databricks notebook source
# MAGIC %md
# MAGIC # Compaction: a topic that keeps the newest value of each key
# MAGIC With `cleanup.policy=compact` the log forgets a record once a newer one has its key. Offsets stay: a consumer
# MAGIC that reads from the start sees the final state of every key, whatever it missed. A null value deletes its key.

# COMMAND ----------
import random
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


updates = int(widget("updates", "2000"))
chance = random.Random(int(widget("seed", "11")))
folder = Path(tempfile.mkdtemp(prefix="stratalog-compaction-"))
cluster = Cluster.start(folder, brokers=1, fetcher="thread", config={"stratalog.upkeep.interval.ms": 500})
admin = Admin(cluster)
topic_id = admin.create_topic(
    "profiles", partitions=1, replication_factor=1, cleanup_policy="compact", segment_bytes=30_000,
    min_cleanable_dirty_ratio=0.99, delete_retention_ms=0,
)  # fmt: skip

# COMMAND ----------
# Forty people change their profiles, some much more often than others; two leave.
expected: dict[bytes, bytes] = {}
with Producer(cluster) as producer:
    for n in range(updates):
        person = f"person-{min(int(chance.expovariate(0.12)), 39):02}"
        producer.send("profiles", key=person, value=f"version {n}")
        expected[person.encode()] = f"version {n}".encode()
        if n % 200 == 199:
            producer.flush()
    for person in ("person-00", "person-01"):
        producer.send("profiles", key=person, value=None)
        del expected[person.encode()]
print(len(expected), "people with a profile")


# COMMAND ----------
def read_all() -> list:
    with Consumer(cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign_all("profiles")
        found = []
        while batch := consumer.poll(timeout_ms=1000):
            found += batch
        return found


before = read_all()
print(len(before), "records before")

# COMMAND ----------
# MAGIC %md
# MAGIC The cleaner runs when `min.cleanable.dirty.ratio` of the log is not compacted yet. So far nearly the whole log
# MAGIC had to be; now any part is enough. The newest segment is never compacted, as in Kafka: records still arrive
# MAGIC there.

# COMMAND ----------
changed = admin.alter_configs("profiles", {"min.cleanable.dirty.ratio": 0.01})
deadline = time.monotonic() + 120
after = read_all()
while len(after) > len(before) // 2 and time.monotonic() < deadline:
    time.sleep(0.5)
    after = read_all()
print(len(after), "records after,", len(before) - len(after), "gone")

# COMMAND ----------
# The state is the same, folded from fewer records, and each record kept its offset.
state: dict[bytes, bytes] = {}
for record in after:
    if record.value is None:
        state.pop(record.key, None)
    else:
        state[record.key] = record.value
assert state == expected
assert {record.offset for record in after} <= {record.offset for record in before}
end = Consumer(cluster).end_offsets([TopicPartition("profiles", 0)])[TopicPartition("profiles", 0)]
print(len(state), "people; the log ends at", end, "as before")

# COMMAND ----------
figure, both = plt.subplots(2, 1, figsize=(9, 4), sharex=True, layout="constrained")
for axes, records, title in zip(both, (before, after), ("before", "after"), strict=True):
    axes.plot([r.offset for r in records], [int(r.key[-2:]) for r in records], ".", markersize=3)
    axes.set(ylabel="person", title=f"{title}: {len(records)} records")
both[-1].set(xlabel="offset")
display(figure) if "display" in globals() else None

# COMMAND ----------
cluster.stop()
shutil.rmtree(folder)
