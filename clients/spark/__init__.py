"""`format("stratalog")`: source and sink for Spark, and the committed view."""
