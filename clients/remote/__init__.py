"""Brokers of other processes, called at their listeners.

translation        requests to coordinators as Kafka's messages, and the answers back
between_brokers    requests that brokers send to each other, several in one message
open_requests      which request of a connection waits for which answer; when to connect again
login              how a connection logs in
connection_security TLS and the login of a client's connections
inter_broker       the same of brokers that call each other
broker_connection  one connection to a broker
remote_broker      a broker as clients call it: `BrokerFace`
remote_cluster     the brokers of a cluster by what they registered: `RunningCluster`
"""
