"""What runs inside a worker process: store, actors, run loop, tools, permissions and providers."""
