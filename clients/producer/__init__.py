"""Records in: from `send` to the leaders' answers.

producer           the public class
partitioner        which partition a record goes to: murmur2, sticky, round robin
accumulator        batches waiting and in flight, per partition
batch              one batch for one partition
table_batches      an Arrow table cut into batches
schedule           which partitions are due, and when
sender             the background thread
retry              what follows from an answer: done, retry, split or fail
transport          by call to a broker of the process, or through a leader's inbox
transactions       the transactional calls
transaction_state  the states of a transactional producer
"""
