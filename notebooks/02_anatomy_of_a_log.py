# Databricks notebook source
# MAGIC %md
# MAGIC # Anatomy of a log: what lies in the directory of a partition
# MAGIC A replica of a partition is one Delta table. Data files are Parquet with offsets that count from 0; a commit
# MAGIC gives each file its base offset, so `offset = base_offset + offset_delta`. Any Delta reader reads the table.

# COMMAND ----------
import json
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
from deltalake import DeltaTable

from stratalog import Admin, Cluster, Consumer, OffsetAndMetadata, Producer, TopicPartition


def widget(name: str, default: str) -> str:
    """The value of a widget; the default where there is no Databricks."""
    if "dbutils" not in globals():
        return default
    dbutils.widgets.text(name, default)
    return str(dbutils.widgets.get(name))


records = int(widget("records", "3000"))
folder = Path(tempfile.mkdtemp(prefix="stratalog-anatomy-"))
cluster = Cluster.start(folder, brokers=1, fetcher="thread", config={"stratalog.upkeep.interval.ms": 600_000})
topic_id = Admin(cluster).create_topic("clicks", partitions=1, replication_factor=1, segment_bytes=20_000)

# COMMAND ----------
# Records in a few batches: each batch that reaches the leader alone is one data file and one commit.
with Producer(cluster) as producer:
    for n in range(records):
        producer.send("clicks", key=f"user-{n % 11}", value=f"click {n}")
        if n % 250 == 249:
            producer.flush()
replica = folder / "broker-1" / "clicks-0"
for pattern in ("_delta_log/*.json", "segment=*/**/*.parquet"):
    paths = sorted(replica.glob(pattern))
    print(len(paths), pattern)
    for path in paths[:3]:
        print(f"{path.stat().st_size:>8} bytes  {path.relative_to(replica)}")

# COMMAND ----------
# MAGIC %md
# MAGIC A commit is a JSON file, made only if it is absent: that is the only lock. Its `add` has the file's segment,
# MAGIC leader epoch and base offset. Its `txn` actions say what adds cannot, such as the log end. `commitInfo` names
# MAGIC the predecessor, so that a writer sees whether the log is still the one it read.

# COMMAND ----------
newest = max(replica.glob("_delta_log/*.json"))
for line in newest.read_text().splitlines():
    [(action, content)] = json.loads(line).items()
    if action == "add":
        print(action, content["path"], content["partitionValues"])
    elif action == "txn":
        print(action, content["appId"], content["version"])
    else:
        print(action, sorted(content))

# COMMAND ----------
# MAGIC %md
# MAGIC ## Offsets are a sum
# MAGIC The rows of a file know their place in it only. A writer that loses the race for a commit gives the same file
# MAGIC another base offset and rewrites nothing; a follower copies the bytes.

# COMMAND ----------
table = DeltaTable(str(replica))
frame = table.to_pandas(columns=["segment", "base_offset", "offset_delta", "leader_epoch", "key", "value"])
frame["offset"] = frame.base_offset + frame.offset_delta
frame = frame.sort_values("offset", ignore_index=True)
assert list(frame.offset) == list(range(records))
frame[["offset", "base_offset", "offset_delta", "leader_epoch", "key", "value"]].iloc[[0, 1, 249, 250, -1]]

# COMMAND ----------
# Segments begin where the last one is full (`segment.bytes`). Retention and compaction work on whole segments.
figure, axes = plt.subplots(figsize=(9, 3), layout="constrained")
for place, (_, rows) in enumerate(frame.groupby("segment")):
    for base_offset, file in rows.groupby("base_offset"):
        axes.barh(place, len(file), left=base_offset, height=0.7, color=f"C{place % 10}", edgecolor="white")
axes.invert_yaxis()
axes.set(xlabel="offset", ylabel="segment", title="data files of one partition, by segment")
display(figure) if "display" in globals() else None

# COMMAND ----------
# Time travel is the past of the log: the table as of an earlier commit ends earlier.
versions = range(table.version() - 6, table.version() + 1)
for version in versions:
    past = DeltaTable(str(replica), version=version)
    print(f"version {version}: {past.to_pyarrow_table(columns=['offset_delta']).num_rows} records")

# COMMAND ----------
# MAGIC %md
# MAGIC ## Offsets of groups are a compacted table
# MAGIC A consumer group's offsets are records of the topic `__consumer_offsets`, one more table for each of its
# MAGIC partitions. The key names group, topic and partition, and compaction keeps the newest record of a key.

# COMMAND ----------
cluster.stop()
small = {"num.partitions": 1, "replication.factor": 1, "segment.bytes": 20_000}
settings = {f"offsets.topic.{name}": number for name, number in small.items()}
again = Cluster.start(folder, brokers=1, fetcher="thread", config=settings)
with again, Consumer(again, group_id="readers") as reader:
    place = TopicPartition("clicks", 0)
    for n in range(1, records + 1, 10):
        reader.commit_sync({place: OffsetAndMetadata(n)})
    offsets = str(folder / "broker-1" / "__consumer_offsets-0")
    counts = [DeltaTable(offsets).to_pyarrow_table(columns=["key"]).num_rows]
    Admin(again).alter_configs("__consumer_offsets", {"min.cleanable.dirty.ratio": 0, "segment.ms": 1})
    while counts[-1] > counts[0] / 4:
        time.sleep(1)
        counts.append(DeltaTable(offsets).to_pyarrow_table(columns=["key"]).num_rows)
    print(f"{records // 10} commits of one partition: {counts[0]} records, {counts[-1]} after compaction")
    print("the group stands at", reader.committed([place])[place].offset)
history = DeltaTable(offsets).history()
print(Counter(entry["operation"] for entry in history))

# COMMAND ----------
shutil.rmtree(folder)
