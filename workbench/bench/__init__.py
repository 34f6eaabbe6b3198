"""How fast a model is: throughput and latency under load, at any server of the V2 protocol."""
