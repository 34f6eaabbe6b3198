"""The annexes: each is removed with its folder and its line here."""

ANNEXES = (
    "connect",
    "conversion",
    "planner",
    "bench",
    "shared_memory",
    "images",
    "modelmesh",
    "sagemaker",
)
