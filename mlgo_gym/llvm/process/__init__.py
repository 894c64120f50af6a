"""The worker: its process, what it is asked and what it answers, and how it forks."""
