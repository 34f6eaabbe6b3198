"""The version, once: the package, the wires and the packaging all read it here."""

__version__ = "0.1.0"
