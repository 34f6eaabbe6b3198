"""Questions to a model, of this process or of a server elsewhere, and their answers, in Python."""
