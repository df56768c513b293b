"""What clients did and saw, and what a history must not show.

history   events, one a line
recorder  the file, a recording producer and a recording consumer
stored    what replicas hold, as events
checker   the rules
"""
