"""The contracts of other platforms as values and calls of the core, for all protocols."""
