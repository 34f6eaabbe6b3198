"""SageMaker's multi-model endpoint: the platform that loads, invokes and unloads a container."""
