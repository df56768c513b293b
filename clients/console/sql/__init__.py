"""One SQL statement over topics, typed tables and the cluster's state, read only and bounded.

bounds   how much a statement may take, and what it reads of a table
typed    the typed tables that an asker may read, and their rows
tables   the tables that an asker may read, and their rows
json_path  a value of a JSON text by its path, as Spark's `get_json_object`
engine   the child process that plans and runs the statement; it imports nothing of this project but `json_path`
child    the parent's side: starts it, feeds it, ends it
sql      the questions
"""
