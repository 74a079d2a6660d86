"""What clients and the daemon say: Params and Result of each method, a file a noun, and one table.

Import from the noun's file: a process that says three of these words need not make all 150.
`table` is for who serves or describes them all.
"""
