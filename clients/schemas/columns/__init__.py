"""Columns of record keys or values as typed Arrow columns, and back.

prefixes     the schema id of each row, and rows grouped by it
reader       `read_column`: binary column to typed column, errors by row; the interface of formats
avro, json_schema, protobuf   the types of a schema, and the values of its rows
avro_writing, json_writing, protobuf_writing   what a column has to be, and its values as their writer takes them
json_text    JSON texts as values, strictly
avro_fast    the twin of `avro`'s reading for many rows of one schema
writer       `ColumnWriter`: typed column to binary column
"""
