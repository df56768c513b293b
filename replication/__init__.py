"""Who leads, who is in sync, who may write: brokers, controller, metadata log, follower fetch."""
