"""Folders that are given by URI: those of S3 are mirrored here to be read, and parts put there."""
