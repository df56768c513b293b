"""What hosts coordinator shards on a broker: fold, decide, append, answer."""
