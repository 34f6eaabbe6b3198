"""The background thread that answers the network, and its sockets.

Its modules are imported one by one: ``server`` brings uvicorn, which only a start needs.
"""
