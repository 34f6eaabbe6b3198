"""Running models: a request from its start to its answer."""
