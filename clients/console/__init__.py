"""The console: a web application that shows a cluster and, if it is allowed to, changes it.

beside       what belongs to the cluster and is not in it
asker        the user who asks, with the cluster
question     a question with its parameters, and an answer as JSON
schemas      schemas, and records read by them
typed        typed tables and their dead letters
questions    what can be asked
stored/      what can be asked of storage alone
over_time/   rates of topics, lags of groups
sql/         one SQL statement over topics and the cluster's state
changes      what can be changed
catalogue    all questions and changes by name
shown_text   bytes of others as text that can be shown
times        times as a user writes and reads them
doors        how a user enters
sessions     sessions of browsers, and how logins are slowed
silence      whether brokers still give signs of life
pages        pages as HTML
guard        what holds for every request
agents       the questions as an MCP server
application  addresses, logins, pages, JSON
serving      the server

`templates` and `static` have what pages are made of: all of it is the console's own.
"""
