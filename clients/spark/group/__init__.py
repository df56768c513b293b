"""A streaming query in a consumer group: `kafka.group.id`.

options       the group's options as a value
offsets       what to commit, and where partitions begin
coordinators  how a planner reaches the group's coordinator
commits       commit mode: all partitions are read, the group's offsets follow the query
"""
