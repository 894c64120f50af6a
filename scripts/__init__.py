"""Tools of the project itself, and `mlgo-cc` as it is installed."""
