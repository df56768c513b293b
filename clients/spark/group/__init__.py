"""A streaming query in a consumer group: `kafka.group.id`.

options       the group's options as a value
offsets       what to commit, and where partitions begin
coordinators  how a planner reaches the group's coordinator
commits       commit mode: all partitions are read, the group's offsets follow the query
shared_offsets  share mode: batches of a member's partitions
stateful        queries with state, which may not share partitions
member        the planner as a member of the group
shared_reader streams of a member
planner_end   how a planner ends, and what it does then
"""
