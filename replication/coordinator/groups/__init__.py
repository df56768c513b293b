"""Consumer groups as folds of `__consumer_offsets`: `classic_*` and `modern_*` (KIP-848) as twins."""
