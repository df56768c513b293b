"""Clients in Python: librdkafka by confluent-kafka, kafka-python, aiokafka.

clients       the three behind one face
records       producing with every codec and acks, reading by assignment
groups        classic and KIP-848 groups
transactions  read, process, write; abort; fencing
admin         the admin clients of the three
suite         all of it, as checks
"""
