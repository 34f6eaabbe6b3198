"""The gRPC adapter: the V2 data plane, Triton's extensions of it, and ModelMesh's runtime."""
