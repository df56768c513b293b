"""What a process asks of its stores, and what that costs.

purpose  what an object is for, by its path
calls    counts of one root: calls by kind, and requests as they are billed, by purpose
prices   lists of prices, and which one holds for a root
cost     dollars of counts, of bytes and of a rate
"""
