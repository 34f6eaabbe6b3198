"""Bytes of the wires to requests and responses of the core, and back; called by adapters only."""
