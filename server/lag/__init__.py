"""How far groups are behind: measured by the brokers that coordinate them, shown as metrics, kept in a table.

group_lag     the rule: records and seconds, and the series
first_unread  the timestamp of a partition's first unread record
rounds        the rounds in which a process measures its groups
history       the Delta table of past lags
dated_table   a Delta table of rows by day, to which several processes append
"""
