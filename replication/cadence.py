"""The table of pauses and bounds of what brokers do. Pure.

The kinds of rows, and the pauses that are computed from them, are in `storage/cadence.py`. A part of a broker's session
is a divisor of `broker.session.timeout.ms`, a share is a divisor of a time without news.
"""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.storage.cadence import DAY_MS, HOUR_MS, MINUTE_MS, BackOff, Bound, Poll

# -- what is polled --------------------------------------------------------------------------------------

METADATA = Poll(
    "the metadata log, by a broker's loop and by a fetch session, within `stratalog.metadata.poll.ms` and `.max.ms`",
    "a change that no failure announces may be seen half a second late",
    watched_ms=1_000,
    share=20,
)
FOLLOWER_ROOT_RETRY = BackOff(first_ms=500, most_ms=10_000)
"""The pauses of reads of a follower's progress after its root did not answer: its leader needs it soon."""
METADATA_READ_PART = 3
"""Part of a broker's session after which the metadata log is read where a thread looks for its commits."""
INBOX = Poll(
    "a broker's inbox, within `stratalog.inbox.poll.ms` and `.max.ms`",
    "each read is a listing, which costs more than other requests",
    watched_ms=1_000,
    share=20,
)
INBOX_LISTED = Bound(
    10_000,
    "the time without requests for which an inbox on an object store is listed; then its bell is read",
    "a listing costs a dozen reads; a sender whose last request is half as old need not ring",
)
INBOX_BELL_TIMES = 2
"""Factor of `stratalog.inbox.poll.max.ms` in the longest pause between two reads of a bell."""
FOLLOWERS_PROGRESS = Poll(
    "followers' progress, by their leader, within `stratalog.progress.poll.min.ms` and four times `.max.ms`",
    "an append, or the start of an epoch, ends the pause: nobody waits for the longest one while records flow",
    watched_ms=1_000,
    share=10,
)
FOLLOWERS_PROGRESS_TIMES = 4
"""Factor of `stratalog.progress.poll.max.ms` in the longest pause of a leader, which its own appends end."""
FOLLOWERS_PROGRESS_RESTING = Bound(
    20, "the pause above which a thread that polls is woken when progress is expected", "a shorter one ends by itself"
)
SESSIONS_LISTED = Poll(
    "the list of a follower's fetch sessions, by their leader",
    "nothing of a new session is read before it is listed",
    watched_ms=5_000,
    share=10,
    shortest_ms=200,
    longest_ms=5_000,
)
SESSIONS_LISTED_TIMES = 4
"""Where new sessions are not reported they are listed at least after so many reads of those that were found."""
LEADERS_ENDS = Poll(
    "a leader's log ends, by a fetch session, within `stratalog.progress.poll.min.ms` and `.max.ms`",
    "records that a leader publishes after a quiet time are copied at most one pause later",
    watched_ms=100,
    share=10,
)
RESCAN = Poll(
    "the tables of a leader's partitions, a few each time, and its high watermarks",
    "it finds what was published and missed; elsewhere each look is a request",
    watched_ms=2_000,
    share=10,
    shortest_ms=2_000,
    longest_ms=20_000,
)
SESSIONS = Poll(
    "brokers' sessions and metadata, by a candidate, within parts of `broker.session.timeout.ms`",
    "at least three polls fall into a session; where they are requests, fewer while nothing changes",
    share=12,
)
SESSION_WRITTEN = Bound(
    30_000,
    "the interval in which a broker on an object store writes its session's object while all live brokers take its "
    "beats",
    "it shows that the broker may write there, also to who cannot be called",
)
METADATA_ANNOUNCED_TIMES = 4
"""Factor of `stratalog.metadata.poll.max.ms` in the longest pause of polls for metadata on an object store while all
live brokers announce theirs."""
METADATA_READ_SESSIONS = 3
"""Broker's sessions after which a candidate reads the metadata log although its broker's loop has seen no commit."""
POLLS_IDLE, POLLS, POLLS_LATE = 6, 12, 24
"""A candidate's polls of sessions within `broker.session.timeout.ms`: where they are requests to an object store and
metadata have not changed for long, everywhere else, and there while a session is late."""

# -- a broker's loop -------------------------------------------------------------------------------------

LOOP_WAIT = Bound(1_000, "the longest wait of a broker's loop", "a report that was missed is noticed by then")
LOOP_RETRY = Bound(
    20,
    "the pause of a broker's loop while something waits for a store that is away",
    "the store may return at any time",
)
APPENDS = Bound(
    2,
    "the time in which one turn begins appends while few partitions move",
    "then they are published, and followers' progress is read",
)
APPENDS_GATHERED = Bound(
    3,
    "how long a loop whose appends are stored beside it waits for more of them once one is stored",
    "those that began together end together, and are published together: each publication is a request, too",
)
APPENDS_YIELD = Bound(
    250,
    "how long a partition's appends wait at most for the loop, which found one under way when it was to commit itself",
    "they would follow each other without a gap, and upkeep would never have its turn",
)
EPOCH_STARTS = Bound(
    50, "the time in which one turn begins leader epochs", "their first commits are synced, and appends wait"
)
DRAIN = Bound(
    10_000, "the time in which a broker that shuts down appends what waits", "a store that is away must not keep it"
)
COMMITS_LATELY = Bound(
    10_000,
    "the time after a partition's commit for which it counts as one that commits, while a budget spaces commits",
    "one that commits less often costs little",
)
COMMITS_COUNTED = Bound(1_000, "the interval in which these partitions are counted", "each count is over all of them")
OFFLINE_REPORTED = Bound(
    1_000, "the interval of reports of offline replicas", "a report that changes nothing still refreshes metadata"
)
DOMAIN_UNANSWERED_PART = 3
"""Part of a broker's session for which a storage domain may leave unanswered what a leader stores there: 3 s of 9 s, as
its own root may. Then another replica is to lead."""
DOMAIN_RETRY = BackOff(first_ms=1_000, most_ms=10_000)
"""The pauses before a broker tries a storage domain again that it reported to be out of its reach. They grow with each
try that fails, and with each report soon after a return."""
DOMAIN_SOUND = Bound(
    60_000, "the time since a return after which a report of the same domain is a first one", "it had worked again"
)
ANSWERS_CLEANED = Bound(
    60_000,
    "the interval in which an inbox is listed whatever its bell says, and old answers in it are deleted",
    "a sender may have died before it rang; answers only take room",
)
FAR_ROOT_WRITTEN = Bound(
    60_000,
    "the interval in which an idle broker writes to its own root on an object store",
    "each write is paid, and the first use finds a root that takes none",
)
APPEND_RETRY = Bound(
    100, "the pause of a leader's appends after its store failed", "the requests wait until their own time-outs"
)
LOG_ENDS_RETRY = Bound(200, "the pause of reads of log ends after a root did not answer", "a leader waits for them")
LOG_ENDS_WAIT = Bound(1_000, "the longest wait of a thread that has no log end to read", "a question wakes it")
REMOVALS = Bound(50, "the time of one round of removals of replicas", "the rest follows in the next round")
LEFT_TABLE_RETRY = BackOff(first_ms=5_000, most_ms=60_000)
"""The pauses until a table in a storage domain that its partition left has rested, or the domain answers."""
STRAYS_SEARCHED = Bound(
    60_000, "the interval of the search for tables that no partition of a broker knows of", "it lists the root"
)
SEALED_SEARCHED = Bound(
    5_000, "the interval of the search for sealed tables among replicas that are not in sync", "it reads their tables"
)
PROPOSAL_RETRY = Bound(
    50, "the longest pause after a lost race for the metadata log", "proposals of a few brokers meet seldom"
)
FOLD_WAIT = Bound(
    500, "the longest wait for another part of the process that folds the same log", "that part's store may be slow"
)
FIRST_FOLD_WAIT = Bound(
    10_000, "the same of a part that has nothing folded yet", "the other one folds the whole log for both"
)
METADATA_UPKEEP = Bound(
    5_000, "the interval of the controller's upkeep of the metadata log", "the log takes few commits"
)
HISTORY_APPENDED = Bound(
    6 * HOUR_MS,
    "the longest time between two appends to the metadata log's history",
    "each append is a file of a table for people to read",
)

LOG_START_RETRY = Bound(
    100, "the pause before a log start that could not be committed is tried again", "its client waits for it"
)

# -- fetch sessions --------------------------------------------------------------------------------------

COPIES = Bound(4, "the time in which one turn copies while few partitions move", "copies are published soon")
REPLICA_RETRY = BackOff(first_ms=20, most_ms=320)
"""The pauses before a replica is tried again whose leader has not started its epoch yet: it is about to."""
LEADER_RETRY_MOST = Bound(
    10_000, "the longest pause after a leader's root did not answer", "elections have given its partitions to others"
)
THROTTLE_RECHECK = Bound(
    1_000, "the longest time until a throttled partition is checked again", "the rates may be changed meanwhile"
)
SESSION_FORGOTTEN = Bound(
    60_000,
    "the time without a change after which another session's objects are deleted",
    "a session that lives beats much more often",
)
FORGETTING_GAP = Bound(
    20_000,
    "the longest pause between two such checks",
    "after a longer one this session slept, perhaps with the others",
)
SESSION_ENDING = Bound(
    2_000,
    "the time before its end, at most its last fifth, in which an active session publishes `ending`",
    "the session on standby folds what it lacks meanwhile",
)
FOLD_AHEAD = Bound(
    10_000,
    "the refresh interval of a session on standby",
    "a refresh costs as much as a commit, so each should find many commits",
)
CLOSE_UP = Bound(
    100,
    "the refresh interval of a session on standby once the active one is about to end",
    "it copies soon, and then folds no more than it must",
)
FOLD_AHEAD_REST = Bound(20, "the rest of a session on standby between two slices of folding", "others need the CPU")
TURN_WAIT = Bound(
    200,
    "the longest wait for what a session's fetchers do at their end, and of a turn of a watched session on standby",
    "heartbeats are on time",
)
SESSION_REST = Bound(1_000, "the longest wait of a session where nothing is watched", "its stop object is polled")
PRESSING = Bound(20, "the longest wait of a fetcher while upkeep is due at once", "logs grow meanwhile")
FETCHERS_END_PART = 9
"""Part of a broker's session that a fetcher's turn may have taken at a session's end, 1 s of 9 s: one that took longer
is left behind, since its leader's root answers nothing, and nothing is copied from other leaders meanwhile."""
HELD_READ = Bound(
    500,
    "the age at which what sessions of a registration published is read again, where a table is absent",
    "several replicas may ask in one turn",
)
COPY_TIMES_PUBLISHED = Bound(5_000, "the interval in which a fetcher publishes its metrics", "a scrape is not as often")
COPY_TIMES_STALE = Bound(
    15_000, "the age of a fetcher's metrics from which they are left out", "three publications were missed"
)
SESSIONS_ENDED = Bound(
    10_000,
    "the longest wait for a broker's own root, and for each thread, when fetch sessions are to end",
    "a root that answers nothing must not keep the process",
)
SESSION_STATES_KEPT = Bound(
    HOUR_MS, "the age at which the states of ended sessions are removed", "measured by the store's clock alone"
)


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """The intervals of one session.

    beat        between two of its heartbeats
    stop        between two looks whether the broker has stopped
    superseded  between two looks, of an active session, whether another one took its place
    check       between two looks, of one on standby, at the active session
    others      between two listings, of one on standby, of the other sessions
    """

    beat_ms: int
    stop_ms: int
    superseded_ms: int
    check_ms: int
    others_ms: int


BEAT = Bound(200, "the heartbeat interval of a session that works", "the next session takes over after five of them")
QUIET_BEAT = Bound(
    2_000,
    "the heartbeat interval of sessions that rest or are on standby where writes are not reported",
    "each beat is a request; nobody beats less often",
)
RESTS_AFTER = Bound(
    10_000, "the time without copies and new metadata after which an active session rests", "a copy ends the rest"
)
RESTING_LENGTH = Bound(
    60_000, "the length of the shortest session that rests", "the next one is to find the end of a short one in time"
)
SILENCE = Bound(
    1_000, "the time without a beat after which an active session is taken for dead", "nothing is copied meanwhile"
)
RESTING_SILENCE = Bound(6_000, "the same of a session that rests", "three of its beats; it has nothing to copy")
HEARTBEATS_WATCHED = Heartbeats(beat_ms=BEAT.ms, stop_ms=1_000, superseded_ms=1_000, check_ms=200, others_ms=1_000)
HEARTBEATS_WATCHED_STANDBY = Heartbeats(beat_ms=500, stop_ms=1_000, superseded_ms=1_000, check_ms=200, others_ms=1_000)
"""Of a session that works and of one on standby, where the other sessions' writes are reported: the intervals are for
missed notifications. The rows below are for where they are not: there each look is a request."""
HEARTBEATS = Heartbeats(beat_ms=BEAT.ms, stop_ms=200, superseded_ms=1_000, check_ms=200, others_ms=1_000)
HEARTBEATS_RESTING = Heartbeats(
    beat_ms=QUIET_BEAT.ms, stop_ms=2_000, superseded_ms=5_000, check_ms=1_000, others_ms=5_000
)
HEARTBEATS_STANDBY = Heartbeats(
    beat_ms=QUIET_BEAT.ms, stop_ms=2_000, superseded_ms=5_000, check_ms=200, others_ms=1_000
)
HEARTBEATS_STANDBY_RESTING = Heartbeats(
    beat_ms=QUIET_BEAT.ms, stop_ms=2_000, superseded_ms=5_000, check_ms=1_000, others_ms=5_000
)
HEARTBEATS_STANDBY_ENDING = Heartbeats(
    beat_ms=QUIET_BEAT.ms, stop_ms=2_000, superseded_ms=5_000, check_ms=20, others_ms=1_000
)
"""Of a session on standby, while the active one rests or ends. One that is ending is looked at closely, so that nobody
copies only briefly."""

# -- fetch sessions on Spark -----------------------------------------------------------------------------

QUERIES_END = Bound(15_000, "the longest wait for fetch queries to end", "Spark's tasks end with their session")
TASK_RETRY = Bound(200, "the pause of a query whose broker has stopped", "Spark asks again until it is ended")
QUERIES_END_POLL = Bound(50, "the interval of looks whether fetch queries have ended", "a look is a local call")
SUPERVISED = Bound(2_000, "the interval in which fetch queries are looked after", "a query that died is begun again")
AT_WORK = Bound(6_000, "the time within which a session that is at work publishes something", "three looks after it")
AFTER_END = Bound(500, "how long a session stays in its slot after it has ended", "Spark plans the next one meanwhile")
EARLY_SESSION = Bound(
    40_000, "the length that first sessions are staggered by, however long later ones are", "see `fetch.py`"
)
SPARK_CHECKPOINTS = Bound(
    HOUR_MS,
    "the interval of Spark's checkpoints of a fetch query",
    "nothing reads them: a query that died starts with a new one",
)
PLANNER_REQUEST = Bound(
    5_000, "the longest wait for a launcher's request to its planner", "a launcher sends it when it connects"
)
PLANNER_END = Bound(5_000, "the time in which a planner ends by itself after its launcher", "then its process is ended")
OTHER_ROOTS_WAIT = Bound(
    2_000,
    "the longest wait for the roots of other brokers, one of which may answer nothing",
    "such a root is not asked about",
)
JOB_WAIT = Bound(
    60_000, "the longest wait for the tasks that look at the roots", "it includes the start of their Python workers"
)
EXECUTORS_WAIT = Bound(
    30_000,
    "the longest wait for executors to register",
    "as `spark.scheduler.maxRegisteredResourcesWaitingTime` is by default",
)
EXECUTORS_POLL = Bound(100, "the interval in which registered executors are counted", "the count is a local call")
ELDER_LOOKS_MS = 1_000, QUIET_BEAT.ms
"""Pauses before the looks whether another session lives. In both together any that lives publishes something."""
PLACE_SOUND = Bound(
    30_000, "the life of a query's session after which its failure is the first one in a row", "it had begun to work"
)
PLACE_FIRST_SESSION = Bound(
    60_000, "the longest wait for the first session of a follower's queries", "it includes Spark's own start"
)
PLACE_SILENCE = Bound(
    30_000, "the longest silence of a follower's sessions on Spark", "they publish several times a second"
)

# -- coordinators ----------------------------------------------------------------------------------------

SHARD_FOLDS = Bound(20, "the time for folding shards in one turn", "appends to other partitions wait meanwhile")
SHARD_REQUESTS = Bound(
    10,
    "the time within which requests of one turn are begun",
    "then their decisions are appended, and the turn continues",
)
SHARD_STORE_RETRY = Bound(100, "the pause of a shard after its store failed", "clients wait for the coordinator")
SHARD_RETRY = Bound(
    1_000, "the pause before a log that could not be folded is tried again", "the same records fail in the same way"
)
CLOCK_STEP = Bound(
    60_000,
    "the change of the wall clock above which shards are folded again with the new time",
    "timers of members and transactions would fire early or late",
)
SHARD_APPEND = Bound(30_000, "the time-out of a shard's own appends", "Kafka's default of `request.timeout.ms`")
REMOTE_APPEND = Bound(
    30_000, "the time-out of appends to other partitions, such as markers", "then they are sent again elsewhere"
)
MARKER_RETRY = Bound(
    100, "the pause before a marker is sent again", "Kafka's `retry.backoff.ms` of a broker's own requests"
)
EXPRESSION_TURN = Bound(
    50, "one expression's turn in the thread that matches names, if no single name takes longer", "others wait"
)
PRODUCER_EPOCH_KEPT = Bound(
    DAY_MS,
    "the time for which a producer's newest epoch is kept, to refuse older ones early",
    "the log refuses them in any case",
)
OFFSET_PENDING = Bound(
    10 * MINUTE_MS, "the time after which a decided offset is never stored", "the shard would have been closed"
)
OFFSET_GONE = Bound(
    10 * MINUTE_MS,
    "the age from which an offset is removed whose topic the metadata does not have",
    "by then metadata is not behind the commit",
)
NEW_MEMBER_JOIN = Bound(
    5 * MINUTE_MS,
    "the longest time that a new member may wait in JoinGroup",
    "it has no member id yet to heartbeat with",
)
EXPRESSIONS_MATCHED = Bound(
    10_000,
    "the time after which the next heartbeat matches regular expressions again",
    "Kafka's REGEX_BATCH_REFRESH_MIN_INTERVAL_MS",
)

# -- upkeep rounds, and threads --------------------------------------------------------------------------

UPKEEP_ROUND = Bound(
    10,
    "the time of one round of upkeep",
    "the broker or fetch session does no other work meanwhile; long work runs in the background",
)
UPKEEP_PIECE = Bound(3, "the time of one piece of a round while logs take commits", "the turns that follow do the rest")
UPKEEP_RETRY = Bound(1_000, "the pause of a replica's upkeep after its store failed", "its log can wait")
UPKEEP_WARNED = Bound(10_000, "the least time between two warnings that appends wait for upkeep", "one is enough")
LOAD_WINDOW = Bound(5_000, "the time over which the rate of records is taken", "a short pause is no end of a load")
LOAD_STEP = Bound(250, "the least time between two measurements that are kept", "twenty of them are enough")
LOAD_SHORTEST = Bound(1_000, "the least time over which the rate is taken, soon after the start", "a batch is no rate")
READS_HOLD_MERGES = Bound(
    15_000,
    "the longest time for which reads alone hold back merges",
    "a consumer may read for hours; with `LOAD_WINDOW` it is below `UpkeepLimits.leader_first_ms`, after which a"
    " follower no longer waits for its leader's merge",
)
LONG_WORK = Bound(20, "the duration of upkeep that uses enough memory to release it", "short work keeps its arena")
MEMORY_RELEASED = Bound(
    2_000,
    "the shortest interval of releases of memory",
    "the kernel zeroes released memory again, which delays the next large merge",
)
UPKEEP_TURN = Bound(
    1_000, "the time after which work of another root stops keeping its turn", "its root may answer nothing"
)
UPKEEP_END = Bound(10_000, "the longest wait for upkeep that is under way at the end", "its root may answer nothing")
COMPUTING_TURN = Bound(
    1_000,
    "the time after which work that has not ended loses its turn to compute",
    "it may wait for something; it goes on beside the next",
)
LOOK_REST = Bound(
    1_000, "the longest pause of a thread while the loop has not read its news", "the loop's own read ends it"
)
LONG_WAIT_FIRST = Bound(3_000, "how long a wait for a person is silent", "most waits end before")
LONG_WAIT_LINES = Bound(5_000, "the time between two lines about a long wait", "a person reads them")
TURN_WINDOW = Bound(100, "the time over which the partitions that move are counted", "the load changes quickly")
TURNS_APART = Bound(
    5, "how far apart turns begin at least, for each busy loop of the interpreter", "more partitions share a turn"
)
TURNS_APART_MOST = Bound(25, "how far apart turns begin at most", "an acknowledgement waits for a turn")
TURN_WORK_MANY = Bound(
    8,
    "the working time of a turn while many partitions move",
    "a turn that is cut off publishes what it did, so short turns would publish for every second record",
)
