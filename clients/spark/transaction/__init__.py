"""A sink in transactions: `kafka.transactional.id`.

options    the options of such a sink as a value
positions  what the tasks of a source in a group leave for the sink of their query
commit     a batch as one transaction
"""
