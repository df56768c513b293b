"""The cluster's metadata as a log: records, their fold into an image, legal state transitions.

records          the records and their JSON
image            the cluster folded from the records; the result of a decision
log              the partition log of the records, and how a decision is committed
commit_polling   new commits of the log, polled for beside the loop that folds them
states           Kafka's states of partitions and replicas
state_changes    the transitions that records make: checked, and written to the state change log
configs          cluster-wide configs, those of topics, brokers and groups
domain_claim     which cluster uses a place as a storage domain
storage_domains  where the table of a replica is
client_quotas    quotas of clients
acls             access control lists and the authorizer
scram            SCRAM credentials of users
erasures         requests to erase records of a topic
history/         the states that partitions had, and who led when, in a Delta table of their own
backup/          copies of the log, and its restoration
"""
