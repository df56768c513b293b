"""Brokers of other processes, called at their listeners or through their inboxes.

messages         requests to coordinators and leaders as messages, and what the answers say
between_brokers  requests that brokers send to each other, several in one message
inter_broker     the listener, protocol and login of brokers that call each other
places           where a broker is called: at its listener, or through its inbox
inbox_channel    the objects that carry the conversations of one client with one broker
connections/     one connection to a broker, whatever carries it
routes           what makes the connections to one place
remote_broker    a broker as clients call it: `BrokerFace`
heartbeats       beats of this process's brokers to the others
remote_cluster   the brokers of a cluster by what they registered: `RunningCluster`
"""
