"""The dashboard of a notebook: ipywidgets over the views, drawn again by one thread."""
