"""Models come, are replaced, and go."""
