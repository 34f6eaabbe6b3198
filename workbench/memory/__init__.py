"""Memory: the devices, the comparison of the books with the system, and the eviction policies."""
