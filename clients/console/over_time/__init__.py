"""What happened over time: rates of topics and of the cluster, lags of groups.

intervals  the parts of a window of time
chart      a line in time, as a picture
arrivals   when the records of data files came
ends       readings of partitions' ends, and rates between them
past_lag   rows of the table of past lags, summed by group and topic
rates      records and bytes a second
lags       how far a group was behind
pages      their addresses
"""
