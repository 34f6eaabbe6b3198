"""Memory that clients share with the server, by name: tensors that never cross the wire."""
