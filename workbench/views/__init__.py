"""Views of a server for people: values in, text, HTML or a figure out."""

from workbench.views.objects import EventList, Model, ModelList, Status

__all__ = ["EventList", "Model", "ModelList", "Status"]
