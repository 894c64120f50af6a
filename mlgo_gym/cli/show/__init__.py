"""Output of commands: tables, pages, plots, JSON and progress."""
