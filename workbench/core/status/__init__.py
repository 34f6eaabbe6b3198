"""Reports of a server about itself and its models."""
