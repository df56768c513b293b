# Databricks notebook source
# MAGIC %md
# MAGIC # Typed tables: a topic becomes a table with columns
# MAGIC Orders arrive in Avro. A query of one line makes a Delta table of them, exactly once. The table grows with the
# MAGIC schemas of its records. What does not fit is kept beside it until it does, and an erasure reaches both.

# COMMAND ----------
import io
import json
import shutil
import tempfile
from pathlib import Path

import fastavro
import matplotlib.pyplot as plt

from stratalog import Admin, AvroSerializer, Cluster, Producer, Schema, SchemaFolder, TypedTable, stratalog_session


def widget(name: str, default: str) -> str:
    """The value of a widget; the default where there is no Databricks."""
    if "dbutils" not in globals():
        return default
    dbutils.widgets.text(name, default)
    return str(dbutils.widgets.get(name))


orders = int(widget("orders", "300"))
folder = Path(tempfile.mkdtemp(prefix="stratalog-typed-tables-"))
cluster = Cluster.start(folder / "cluster", brokers=3, fetcher="thread")
topic_id = Admin(cluster).create_topic("orders", partitions=1, replication_factor=3)
schemas = SchemaFolder.create(cluster)  # a registry in a topic
spark = stratalog_session("typed-tables")
table, letters = str(folder / "lake" / "orders"), str(folder / "lake" / "orders__dlq")
typed = TypedTable(spark, cluster, "orders", table, {"value.format": "avro", "vacuum.retention.ms": 0}, schemas)


# COMMAND ----------
# Two versions of a schema: an amount of 32 bits, then one of 64 bits and a new field.
def schema(**fields: object) -> str:
    listed = [{"name": n, "type": kind, "default": "" if kind == "string" else 0} for n, kind in fields.items()]
    return json.dumps({"type": "record", "name": "Order", "fields": listed})


def send(text: str, numbers: range, **columns: object) -> None:
    with Producer(cluster, value_serializer=AvroSerializer(schemas, text)) as producer:
        for n in numbers:
            producer.send("orders", {"id": n, **columns}, key=f"customer-{n % 5}")


third = orders // 3
send(schema(id="long", amount="int"), range(third), amount=7)
send(schema(id="long", amount="long", country="string"), range(third, 2 * third), amount=2**40, country="NZ")
state = typed.run_available()
print(f"{state.row_count} rows, {state.dead_letter_count} dead letters, lag {dict(state.lag)}")
spark.read.format("delta").load(table).printSchema()

# COMMAND ----------
# MAGIC %md
# MAGIC ## Records that do not fit
# MAGIC A producer writes by a schema that the registry does not have yet, and another one sends plain JSON by mistake.
# MAGIC Neither stops the query.

# COMMAND ----------
late = json.loads(schema(id="long", amount="long", coupon="string"))
with Producer(cluster) as producer:
    for n in range(2 * third, orders):
        payload = io.BytesIO(b"\x00\x00\x00\x00\x03")  # Confluent's prefix: schema 3
        payload.seek(5)
        fastavro.schemaless_writer(payload, late, {"id": n, "amount": n, "coupon": f"C{n}"})
        producer.send("orders", payload.getvalue(), key=f"customer-{n % 5}")
    producer.send("orders", '{"id": 1}', key="customer-1")
state = typed.run_available()
for error, count in state.dead_letters.items():
    print(f"{count:>4} dead letters: {error}")

# COMMAND ----------
# The schema is registered, and a replay brings in what fits now, exactly once. The JSON stays.
before = {row["offset"] for row in spark.read.format("delta").load(letters).select("offset").collect()}
assert schemas.register("orders-value", Schema(json.dumps(late))).id == 3
print(typed.replay())
rows = spark.read.format("delta").load(table).orderBy("_offset")
rows.groupBy("country", "coupon").count().orderBy("count", ascending=False).limit(3)

# COMMAND ----------
# Each record has the columns of its schema; the others are null. Red: records that were dead letters.
columns = ["id", "amount", "country", "coupon"]
figure, axes = plt.subplots(figsize=(9, 2.8), layout="constrained")
for place, column in enumerate(columns):
    offsets = [row["_offset"] for row in rows.where(f"{column} IS NOT NULL").select("_offset").collect()]
    for colour, chosen in (("tab:blue", [o for o in offsets if o not in before]), ("tab:red", before & {*offsets})):
        axes.plot(sorted(chosen), [place] * len(chosen), "|", color=colour, markersize=22)
left = [row["offset"] for row in spark.read.format("delta").load(letters).collect()]
axes.plot(left, [len(columns)] * len(left), "x", color="tab:red")
axes.set(xlabel="offset", title="what the table has of each record")
axes.set_yticks(range(len(columns) + 1), [*columns, "dead letter"])
display(figure) if "display" in globals() else None

# COMMAND ----------
# MAGIC %md
# MAGIC ## An erasure reaches the table
# MAGIC A customer asks to be forgotten. The brokers erase the log, the query its table and the dead letters; once the
# MAGIC delay is over (here 0) no file holds one of the customer's rows.

# COMMAND ----------
erase_id = Admin(cluster).delete_where("orders", {"key": {"equals": "customer-1"}})
for _ in range(2):  # the first run deletes rows, the second one files
    typed.run_available()
for found in typed.describe_erasure(erase_id):
    print(found)
    assert found.is_gone

# COMMAND ----------
schemas.close()
cluster.stop()
shutil.rmtree(folder)
