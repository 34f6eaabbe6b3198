"""ModelMesh's published interface, and what docs/grpc.md says of it."""

import re
from pathlib import Path

from workbench.annexes.modelmesh.environment import Environment
from workbench.protos import message_class, service
from workbench.settings import declared

PAGE = (Path(__file__).parents[3] / "docs" / "grpc.md").read_text("utf-8")


def numbers(message: str) -> dict[str, int]:
    """The fields of a message by their names."""
    fields = message_class("model_runtime", f"mmesh.{message}").DESCRIPTOR.fields
    return {field.name: field.number for field in fields}


def test_the_service() -> None:
    """Its methods and fields have the published names and numbers."""
    methods = ["runtimeStatus", "predictModelSize", "loadModel", "modelSize", "unloadModel"]
    found = service("model_runtime", "mmesh.ModelRuntime").methods
    assert [method.name for method in found] == methods
    assert numbers("RuntimeStatusResponse") == {
        "status": 1,
        "capacityInBytes": 2,
        "maxLoadingConcurrency": 3,
        "modelLoadingTimeoutMs": 4,
        "defaultModelSizeInBytes": 5,
        "runtimeVersion": 6,
        "numericRuntimeVersion": 7,
        "methodInfos": 8,
        "limitModelConcurrency": 9,
        "allowAnyMethod": 10,
    }
    asked = {"modelId": 1, "modelType": 2, "modelPath": 3, "modelKey": 4}
    assert numbers("LoadModelRequest") == numbers("PredictModelSizeRequest") == asked
    assert numbers("LoadModelResponse") == {"sizeInBytes": 1, "maxConcurrency": 2}
    assert numbers("RuntimeStatusResponse.MethodInfo") == {"idInjectionPath": 1}


def test_the_settings_of_the_page() -> None:
    """Every setting that the table names is one, and every variable of memory is read."""
    table = PAGE[PAGE.index("| setting or variable |") :].split("\n\n")[0]
    assert set(re.findall(r"`([a-z_]+)[`=]", table)) <= {option.name for option in declared()}
    environ = dict.fromkeys(re.findall(r"`([A-Z_]+_REQ_BYTES)`", table), "300")
    read = [Environment.of({name: environ[name], "MEM_BUFFER_BYTES": "100"}) for name in environ]
    assert [(each.memory_nbytes, each.buffer_nbytes) for each in read] == [(300, 100)] * 2
