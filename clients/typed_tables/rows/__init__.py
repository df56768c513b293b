"""Records as rows of a typed table.

values           values read as columns, the table grown for them before
reading          plans of schemas, and batches read by them in tasks
evolution        new columns and wider types: what a table needs for a schema
json_checks      JSON texts before Spark reads them
missing_schemas  what records name and the registry lacks, and when it is asked again
"""
