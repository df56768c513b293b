"""One file a tool: `strata-topics` is `stratalog.jobs.tools.topics`."""
