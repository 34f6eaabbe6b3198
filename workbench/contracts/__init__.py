"""What the contracts of other platforms mean, as values and calls of the core, under every wire."""
