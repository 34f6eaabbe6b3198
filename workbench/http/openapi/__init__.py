"""The OpenAPI document. Nobody needs it before it is asked for, so it is imported then."""

from workbench.http.openapi.document import document, document_of_model
from workbench.http.openapi.examples import is_showable

__all__ = ["document", "document_of_model", "is_showable"]
