"""Packing model.tar.gz: the artifact that a container of SageMaker's contract can serve.

An ONNX file becomes ``1/model.onnx``; a model of a repository stays as it is, an ensemble with its
parts beside it; a Python file becomes ``code/inference.py``, or a module that this imports.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

from workbench.annexes.sagemaker.checking import EXAMPLES
from workbench.annexes.sagemaker.layouts import artifact_in
from workbench.archives import ENDINGS, ArchiveMembers, onnx_members, write_archive
from workbench.errors import UsageError, refused_in_one_line
from workbench.repository.config import read_config

_HOOKS = {"model_fn"}, {"predict_fn", "transform_fn"}  # a file with one of each is an inference.py
_LEFT_OUT = {"__pycache__", "__MACOSX"}

_INFERENCE = '''\
"""Runs {function} of {module}.py as SageMaker's inference toolkit runs a model."""

from {module} import {function}


def model_fn(model_dir):
    return {function}


def predict_fn(data, model):
    return model(data)
'''


def pack(
    model: Path, out: Path, *, function: str | None = None, example: Path | None = None
) -> int:
    """Write *model* to *out*, a new tar.gz or in place of an old one; returns its bytes.

    *model* is an ONNX file, a folder of a model or of an artifact, or a Python file, of which
    *function* is served (its only public one if ``None``) unless it has the toolkit's functions.
    Archives directly in a folder are left out.
    *example* is a request that the model answers. Raises ``UsageError``,
    ``LoadFailed``, ``UsageError``.
    """
    members = dict(_members(model, function))
    if example is not None:
        if example.suffix not in EXAMPLES:
            raise UsageError(f"{example} must be one of {', '.join(EXAMPLES)}")
        members[f"example{example.suffix}"] = example
    if not out.parent.is_dir():
        raise UsageError(f"{out.parent} is no folder: make it first")
    with refused_in_one_line(out):
        write_archive(members, out)
    return out.stat().st_size


def _members(model: Path, function: str | None) -> ArchiveMembers:
    if model.suffix == ".py" and model.is_file():
        return _of_code(model, function)
    if function is not None:
        raise UsageError(f"{model} is not a Python file: leave out --function")
    if model.suffix == ".onnx" and model.is_file():
        return onnx_members(model)
    if model.is_dir():  # by its own name: resolve() would follow links
        return _of_folder(Path(os.path.abspath(model)))  # noqa: PTH100
    if model.name.endswith(ENDINGS) and model.is_file():
        raise UsageError(f"{model} is an artifact already: add --check to check it")
    what = "must be" if model.exists() else "is not there: name"
    raise UsageError(f"{model} {what} an ONNX file, the folder of a model, or a Python file")


# ── folders ──


def _of_folder(folder: Path) -> ArchiveMembers:
    artifact_in(folder)  # raises where there is no model
    if not _parts(folder):
        return dict(_files(folder))
    names = [folder.name]
    members: dict[str, Path | bytes] = {}
    for name in names:  # the list grows: parts may have parts
        place = folder.parent / name
        if place.is_dir():
            members.update({f"{name}/{path}": file for path, file in _files(place)})
            names.extend(part for part in _parts(place) if part not in names)
        else:
            one = onnx_members(place.with_name(f"{name}.onnx"))
            members.update({f"{name}/{path}": file for path, file in one.items()})
    return members


def _parts(folder: Path) -> list[str]:
    """The models that the one in *folder* is made of, if it is an ensemble."""
    ensemble = read_config(folder).ensemble
    return [name for name, _ in ensemble.parts] if ensemble else []


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """The files that belong to the model in *folder*, by their paths in it.

    Archives directly in *folder* are none of them: they were packed there before.
    """
    for path in folder.rglob("*"):
        inner = path.relative_to(folder)
        hidden = any(part.startswith(".") or part in _LEFT_OUT for part in inner.parts)
        packed = path.parent == folder and path.name.endswith(ENDINGS)
        if path.is_file() and not hidden and not packed:
            yield inner.as_posix(), path


# ── code ──


def _of_code(script: Path, function: str | None) -> ArchiveMembers:
    tree = _parsed(script)
    defined = [each.name for each in tree.body if isinstance(each, ast.FunctionDef)]
    with_imports: ArchiveMembers = {
        f"code/{name}": path for name, path in _imported(script, tree, script.parent)
    }
    if function is None and all(hooks.intersection(defined) for hooks in _HOOKS):
        return {**with_imports, "code/inference.py": script}
    if function is None and "model_fn" in defined:
        raise UsageError(
            f"{script} has a model_fn, but neither predict_fn nor transform_fn: add one of them, "
            "or name another function with --function"
        )
    public = [name for name in defined if not name.startswith("_")]
    chosen = function or (public[0] if len(public) == 1 else None)
    if chosen is None:
        named = f": {', '.join(public)}" if public else ""
        told = f"{script} has {len(public)} public functions: name one with --function"
        raise UsageError(f"{told}{named}")
    if chosen not in defined:
        raise UsageError(f"{script} has no function {chosen!r}: it has {', '.join(defined)}")
    if script.stem == "inference" or not script.stem.isidentifier():
        raise UsageError(f"{script} cannot be imported beside code/inference.py: rename it")
    inference = _INFERENCE.format(module=script.stem, function=chosen).encode()
    return {**with_imports, f"code/{script.name}": script, "code/inference.py": inference}


def _imported(script: Path, tree: ast.Module, root: Path) -> Iterator[tuple[str, Path]]:
    """The modules beside *script* that it imports, and those that they import."""
    waiting, seen = [tree], {script}
    while waiting:
        for name in _imports(waiting.pop()):
            package, module = root / name, root / f"{name}.py"
            found = package.rglob("*.py") if package.is_dir() else [module]
            for path in found:
                if path.is_file() and path not in seen:
                    seen.add(path)
                    waiting.append(_parsed(path))
                    yield path.relative_to(root).as_posix(), path


def _imports(tree: ast.Module) -> Iterator[str]:
    """The top-level names of what a module imports by absolute names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _parsed(script: Path) -> ast.Module:
    try:
        return ast.parse(script.read_bytes(), str(script))
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{script} is not valid Python: {error}") from None
