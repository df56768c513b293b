"""The console: a web application that shows a cluster and, if it is allowed to, changes it.

asker      the user who asks, with the cluster
question   a question with its parameters, and an answer as JSON
stored/    what storage alone can tell
questions/ what can be asked
catalogue  all questions by name
"""
