"""Records out, and a consumer's part in its group.

consumer            the public class
positions           position and rows read ahead, per partition
group_member        drives a membership: heartbeats, listener calls, commits
membership          what memberships of both protocols share
classic_membership  the classic protocol, as a state machine
modern_membership   KIP-848's protocol, as a state machine
offsets             committed offsets: written and read
shared_notifications  one watcher for many consumers of a process
rebalance_listener  callbacks of the application
assignors/          assignors of the classic protocol
"""
