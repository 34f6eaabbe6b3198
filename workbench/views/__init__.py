"""What people see of a server: values in, text, HTML or a figure out; nothing is fetched here."""

from workbench.views.objects import EventList, Model, ModelList, Status

__all__ = ["EventList", "Model", "ModelList", "Status"]
