"""What brokers publish to each other through storage: log ends, high watermarks, session notices."""
