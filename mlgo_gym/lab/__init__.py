"""Wings around the gym: built on its public names, found through entry points."""
