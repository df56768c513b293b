"""Clients in Python: librdkafka by confluent-kafka, kafka-python, aiokafka.

clients       the three behind one face
records       producing with every codec and acks, reading by assignment
groups        classic and KIP-848 groups
transactions  read, process, write; abort; fencing
*_admin       the admin clients of the three
schema_registry  the part of a schema registry, by its own requests
suite         all of it, as checks
"""
