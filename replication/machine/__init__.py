"""What only makes one process or one machine faster. The product works without this package."""
