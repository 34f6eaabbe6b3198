"""HTTP: one file a protocol; each decodes, calls one verb of the core, and encodes."""
