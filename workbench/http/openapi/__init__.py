"""The OpenAPI document. Nobody needs it before it is asked for, so it is imported then."""
