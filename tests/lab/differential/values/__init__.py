"""Judges of values in columns: what others read of the same bytes, for random schemas. `make differential-values`.

`avro`       columns of `from_registry` beside Avro's Java reader and Spark's `from_avro`
`growth`     columns of typed tables that have grown from one Avro schema to another, beside Java's of each schema
`protobuf`   columns of `from_registry` beside protobuf's own JSON mapping; `messages` draws schemas and messages
`json_text`  columns of a typed table beside Spark's `from_json` and what the text says; `texts` draws both
`variants`   JSON in one VARIANT column beside Spark's `parse_json` and what the text says
`entries`    records by every way into a topic: the same refusal, or the same stored record
`written`    what `to_registry` makes of the columns again, read by others
`known`      the differences that are meant, each with its reason, and the count of what was found
"""
