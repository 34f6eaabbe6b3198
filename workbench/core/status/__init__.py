"""What a server tells of itself and of its models."""
