"""The seams: the only ways this program reaches disk, clock, processes and network."""
