"""How the threads of one process share an interpreter, its memory and its time.

interpreter    settings of Python's interpreter and garbage collector
turn_pace      how far apart the turns of a loop begin
upkeep_thread  the one thread that does the upkeep of all logs
"""
