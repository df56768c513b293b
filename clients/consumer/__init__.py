"""Records out, and a consumer's part in its group."""
