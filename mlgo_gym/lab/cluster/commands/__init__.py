"""Commands and extensions of commands of this wing."""
