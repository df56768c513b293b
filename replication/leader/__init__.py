"""One led partition.

partition       followers' log ends, high watermark, ISR expand and ISR shrink (Kafka: `Partition`)
replica         its log, its appends in group commits, its answers
domain_reach    which leaders cannot write to their storage domain
log_offsets     what other threads know of its log without reading it
append_queue    requests on their way to the leaders of one broker
commit_governor how long commits gather for a budget of requests
waiting_partitions  in which order these append: senders take turns
purgatory       requests that wait for the high watermark
delete_records  DeleteRecords: the log start moves up on every replica
"""
