"""The server without a wire: every wire, notebook and script goes through its verbs.

They are synchronous, thread-safe, and know nothing of wires. Interfaces above are stateless and
look models up here only.
"""

from workbench.core.inference_verbs import InferenceVerbs
from workbench.core.model_verbs import ModelVerbs


class ServerCore(InferenceVerbs, ModelVerbs):
    """Models of a repository, served from memory under a budget.

    Raises ``RepositoryError`` when the settings' repository cannot be read.
    *files* loads what the repository's files hold: ONNX Runtime, or a double. What happens and
    is counted goes to *records*, of its own unless those of an earlier core are given.
    It takes memory and threads between ``open`` and ``close``, never before or after.
    """
