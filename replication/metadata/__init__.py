"""The cluster's metadata as a log: records, their fold into an image, legal state transitions."""
