"""Views of a server for people: values in, text, HTML or a figure out."""
