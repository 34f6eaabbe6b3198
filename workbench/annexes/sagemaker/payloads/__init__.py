"""The bodies of SageMaker's clients, by media type <-> requests and responses."""
