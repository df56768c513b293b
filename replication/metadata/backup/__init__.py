"""Backups of the metadata log.

backup  a copy of the log as lines of JSON, and its restoration
copies  the copies that brokers keep in their roots
"""
