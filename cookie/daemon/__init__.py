"""The supervisor: who holds which tree, which worker lives, and what a death leads to."""
