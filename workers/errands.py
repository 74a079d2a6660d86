"""Errands: one order, one answer, for who needs a worker's knowledge and has no tree.

Today there is one: `explain`, what the permission rules and the gate make of a call.
"""
