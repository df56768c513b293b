"""The demo: three brokers, a web log, a broker killed, a verdict."""
