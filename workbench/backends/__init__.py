"""What runs a model: one file a kind, behind ``base.Backend`` and ``base.Session``."""
