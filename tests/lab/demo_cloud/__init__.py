"""The demo in a simulated bucket: a broker killed under a web log, the verdict, latency, requests and dollars.

__main__  the command
run       one run
screen    what is shown in the end
stored    the log as outside readers see it
"""
