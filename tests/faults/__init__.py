"""Every call of a command fails, one at a time: what is said, what is left, what is lost."""
