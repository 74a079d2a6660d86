"""What a person configured: files, settings, agents, secrets and surroundings."""
