"""The disk layout both floors read: paths, private files, the read-only log reader, metadata.

Import the part you need: `paths` and `files` are light, `log` and `metadata` load every event.
"""
