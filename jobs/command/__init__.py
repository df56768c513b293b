"""The command line itself: flags, terminal, .properties files."""
