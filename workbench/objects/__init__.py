"""Objects of a notebook as models: estimators, boosters, modules, pipelines and functions.

Imports none of the libraries that these come from: an object is known by the names of its classes.
"""
