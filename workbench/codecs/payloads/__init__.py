"""What SageMaker's clients send and accept, by media type <-> requests and responses."""
