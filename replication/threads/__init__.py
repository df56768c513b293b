"""How the threads of one process share the interpreter and its memory, and how often their loops turn.

daemon_threads  threads that end with the process, whatever they wait for
dropped         closes what dropped objects had opened
side_by_side    calls that wait for an object store, made at the same time
polling_thread  a thread that polls a place of an object store for changes, beside a loop
long_wait       words about a wait that takes long, for a person at a terminal
scheduler       calls after a delay
interpreter     settings of Python's interpreter and garbage collector
free_memory     freed memory, back to the system
computing_turn  which of the threads that compute for long does so now
turn_lock       what the threads of one fetch session hold while they work
turn_interval   how far apart the turns of a loop begin while many partitions move
upkeep_thread   the threads that do the upkeep of all logs of a process, one for each root
"""
