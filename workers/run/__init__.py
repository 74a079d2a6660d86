"""The run loop: history, prompt, turn, batch and retry, a state machine over the fold."""
