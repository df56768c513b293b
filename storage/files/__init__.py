"""One data file of a table.

batch_file       record batches as Parquet and back
batch_file_fast  the twin of its `encode` for a few rows
row_groups       reading only the row groups that a range needs
data_file        what a commit says of a file
codecs           Kafka's compression types as Parquet's
cache            files read lately
files_ahead      small files that are about to be read, asked for several at a time
damage           a file as it was found: whole or damaged
"""
