"""The cluster as storage shows it, without a broker."""
