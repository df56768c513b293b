"""Entries for the command line and spark-submit: parse, wire, run. No rule lives here."""
