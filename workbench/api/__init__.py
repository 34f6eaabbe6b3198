"""The workbench as one Python object, and what a notebook's cell does with it."""
