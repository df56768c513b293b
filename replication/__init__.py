"""Leadership, the ISR and fencing: brokers, controller, metadata log, follower fetch.

config, log_configs, conf_files, stores, broker_root  broker settings and their files; the roots and what marks them
internal_topics, metrics, host_address, price_lists
folders        names of folders: of replicas below a root, of topics below a storage domain
client_pattern  regular expressions that somebody else sends
html_table     descriptions as tables of HTML, for notebooks
cadence        the table of pauses and bounds of what brokers do
shared_fold    what the parts of one process share of a log that each reads
threads/       how the threads of one process share it
requests/      Kafka's requests as plain values
metadata/      the cluster as a log: records, image, ACLs, configs, backup
controller/    decisions on the image, and the loop around them
progress/      what brokers publish to each other: log ends, high watermarks, session notices
replica/       what leaders and followers both do with a replica
leader/        one led partition: append queue, ISR, high watermark, purgatory
follower/      one fetch session and what it follows
coordinator/   groups and transactions as folds of their internal topics
broker/        one broker's loop
fast_start/    planners of Spark's queries that are loaded before they are needed
spark/         Structured Streaming as the scheduler of fetch sessions
"""
