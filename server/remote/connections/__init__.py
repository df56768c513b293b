"""One connection to a broker of another process, whatever carries it.

config              configs of clients' connections
open_requests       which request waits for which answer; when to connect again
login               how a connection logs in
security            TLS and the login of a client's connections
request_connection  one connection: requests, deadlines, its end
broker_connection   the same over a socket
inbox_connection    the same through the inbox
"""
