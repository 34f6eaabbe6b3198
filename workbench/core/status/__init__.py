"""What a server tells about itself and its models."""
