"""What an administrator asks: topics, configs, groups, placement, erasure, backup."""
