"""Memory: the devices it is on, the books kept of it, and who leaves when it runs short."""
