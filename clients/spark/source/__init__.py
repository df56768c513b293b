"""The Spark source.

source         what Spark finds under the format's name to read with
plan           what a micro-batch reads: rate limits, input ranges; `planned_files`: their files
filters        what of a WHERE narrows a batch read
batch_reader   batch reads, and the tasks of batches and streams
stream_reader  where each micro-batch ends
read           what a task reads; `gaps`: which offsets may be missing
"""
