"""Brokers of other processes, called at their listeners.

messages           requests to coordinators and leaders as messages, and what the answers say
between_brokers    requests that brokers send to each other, several in one message
open_requests      which request of a connection waits for which answer; when to connect again
login              how a connection logs in
connection_security TLS and the login of a client's connections
inter_broker       the same of brokers that call each other
places             where a broker is called: at its listener, or through its inbox
request_connection one connection to a broker, whatever carries it: deadlines, its end
broker_connection  the same over a socket
inbox_connection   the same through the inbox
inbox_channel      the objects that carry the conversations of one client with one broker
routes             what makes the connections to one place
remote_broker      a broker as clients call it: `BrokerFace`
remote_cluster     the brokers of a cluster by what they registered: `RunningCluster`
"""
