"""Clients that others wrote, unchanged, against clusters in processes of their own.

served    a cluster for them, as three broker processes or as one process
"""
