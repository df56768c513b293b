"""Kafka's wire: sockets and inboxes in front of a broker's face.

listeners         `listeners`, `advertised.listeners`: where a broker listens, and where clients reach it
frames            a connection's bytes cut into request frames
order             which requests of a connection run at a time, and the order of their answers
security/         TLS and SASL: who a client is
admission         how many connections and queued requests there may be
io_threads        threads for requests that read storage
endpoint_metrics  what a broker's listeners count
connection        one connection: frames in, answers out
loops             network threads, each with an event loop
socket_server     the listening sockets of one process; `SocketServer` of Kafka
inbox_channel     the broker's end of one client's way through the inbox
inbox_listener    requests in one broker's inbox, and their answers
inbox_endpoint    the inboxes of a process's brokers
kafka_endpoint    a process's sockets and inboxes, and the faces of its brokers behind them
"""
