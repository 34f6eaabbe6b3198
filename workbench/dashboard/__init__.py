"""The dashboard of a notebook: ipywidgets over the views, drawn again by one thread."""

from workbench.dashboard.dashboard import Dashboard

__all__ = ["Dashboard"]
