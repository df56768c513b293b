"""The console: a web application that shows a cluster and, if it is allowed to, changes it.

asker      the user who asks, with the cluster
question   a question with its parameters, and an answer as JSON
questions/ what can be asked
stored/    what can be asked of storage alone
sql/       one SQL statement over topics and the cluster's state
catalogue  all questions by name
"""
