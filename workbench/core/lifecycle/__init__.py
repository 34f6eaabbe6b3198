"""Loading, replacing and unloading models."""
