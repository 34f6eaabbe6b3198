"""The backends, which run models: one file a kind, behind ``base.Backend`` and ``base.Session``."""
