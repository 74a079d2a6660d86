"""The store of one worker: its tree on the disk, the logs, the artifacts and the caches."""
