"""What storage alone can tell: the past of the cluster, and the commits of its tables.

storage      the cluster's storage, for questions that need it
commits      the commit that brought an offset into a table
past         the cluster as it was, folded from the metadata log and its history
differences  two images of the cluster compared
timeline     the states of a partition as events
"""
