"""What a tool call may do: the pure match of rules, and the gate that asks."""
