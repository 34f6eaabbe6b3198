"""How fast a model is: throughput and latency under load, and the configuration that serves most.

``benchmark.bench`` measures a model at any V2 server; ``tuning.tune`` finds a configuration and
writes it.
"""
