"""A cluster that is known by its brokers' addresses alone, as any client of Kafka's knows one. Storage is not read.

cluster_image  the cluster's image, from brokers' answers
wire_cluster   brokers by their addresses: requests to one, to any, to each leader
offsets        ListOffsets, by leader
group_offsets  committed offsets of many groups
rows           record batches as rows of a log
fetched        records and bounds in Fetch responses
view           a view for producers, consumers and administrators
configs        configs as DescribeConfigs shows them, and changes
access         ACLs and SCRAM credentials in messages
wire_admin     the admin client
transactions   transactions by their coordinators and leaders
"""
