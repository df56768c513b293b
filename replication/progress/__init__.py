"""Progress that brokers publish to each other through storage: log ends, high watermarks, session states.

progress         one replica's progress, its encoding, the paths of objects
progress_object  the writer and the reader of one progress object
of_leader        the two objects of a broker as leader
own_registers    what brokers of this process wrote, for its readers
led_here         what they lead in storage domains, for the same readers
of_session       the objects and the state of a fetch session
follower_reader  one follower's objects, read in a thread of its own
follower_watch   a leader's view of its followers' objects
known_committed  offsets that are known to be committed before a leader publishes a high watermark
"""
