"""Triton's extensions of V2: their parameters, rows and settings, for HTTP and gRPC alike."""
