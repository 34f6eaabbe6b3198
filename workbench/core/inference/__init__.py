"""Requests: from the asking to the answer, whatever the model is."""
