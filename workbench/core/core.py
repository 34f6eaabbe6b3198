"""The server without its protocols: HTTP, gRPC and the Python API all use these verbs.

The verbs are thread-safe and know no protocol. The layers above keep no state of models.
"""

from workbench.core.inference_verbs import InferenceVerbs
from workbench.core.model_verbs import ModelVerbs


class ServerCore(InferenceVerbs, ModelVerbs):
    """Serves the models of a repository from memory, under a budget.

    *files* loads the repository's models: ONNX Runtime, unless a test gives something else.
    *records* get events and statistics; give those of an earlier core to continue them. The core
    uses memory and threads only between ``open`` and ``close``. Raises ``RepositoryError`` if the
    repository cannot be read.
    """
