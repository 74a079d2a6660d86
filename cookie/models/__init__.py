"""Which models can be called, and how: from what a person authored to frozen bindings."""
