"""Memory that clients share with the server, by name: tensors that never cross the wire."""

from workbench.shared_memory.regions import CudaRegion, Regions, SystemRegion

__all__ = ["CudaRegion", "Regions", "SystemRegion"]
