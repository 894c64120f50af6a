"""What forks are for: exact advantages, beam search, and a search oracle."""
