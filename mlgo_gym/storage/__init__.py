"""Folders that are given by URI: those of S3 are mirrored to be read, worked on, and put there."""
