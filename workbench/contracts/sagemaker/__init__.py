"""SageMaker's contract for the containers of multi-model endpoints."""
