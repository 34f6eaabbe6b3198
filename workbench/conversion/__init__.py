"""Anything that a notebook holds, as a model: files, estimators, modules, functions.

Imports none of the libraries that these come from: a thing is known by the names of its classes.
"""
