"""One script on Kafka and on stratalog, in which only the format and its options change: `make differential-spark`.

sides   a cluster of either kind
cases   what is written, read and refused, and which options each case tries
table   every option of both formats, as docs/spark-options.json has it
"""
