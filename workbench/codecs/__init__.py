"""Convert between the bytes of a wire and the core's requests and responses, for adapters only."""
