"""The cluster's metadata as a log: records, their fold into an image, legal state transitions.

records          the records and their JSON
image            the cluster folded from the records; the result of a decision
log              the partition log of the records, and how a decision is committed
look             new commits of the log, looked for beside the loop that folds them
states           Kafka's states of partitions and replicas
state_changes    the transitions that records make: checked, and written to the state change log
configs          cluster-wide configs, those of topics, brokers and groups
client_quotas    quotas of clients
acls             access control lists and the authorizer
scram            SCRAM credentials of users
erasures         requests to erase records of a topic
history          the states that partitions had, as rows of a Delta table
history_commits  that table's commits, checkpoints and statistics
history_table    that table, appended exactly once and read
leader_history   the leader under which an offset was written
backup           a copy of the log, and its restoration
backup_copies    the copies that brokers keep in their roots
"""
