"""Names that the workbench had once, and what to say or do instead.

A name is that of a setting, which is also a variable, an option of the shell and one of the magic
(``"metrics_every"``); of a verb (``"wb.tune"``), which is also a command and a magic; of a command
alone (``"workbench top"``); of an argument of a verb (``"bench(rates=)"``), which is also an
option of its command and of its magic; of an error, which another one stands for now (``"error
GroupClosed"``); or of a kind of type hints (``"hint of jaxtyping"``).
"""

from __future__ import annotations

_VERBS_OF_OBJECTS = ("serve", "register", "model")
_CONFIG = "write it into config.pbtxt, load the model anew, and measure again"


def _argument(name: str, *verbs: str, cure: str) -> dict[str, str]:
    return {f"{verb}({name}=)": cure for verb in verbs}


REMOVED: dict[str, str] = {
    "artifact_script": "set the variable SAGEMAKER_PROGRAM, or call the file inference.py",
    **_argument("batching", "bench", cure=_CONFIG),
    "container": "this server runs the endpoint's models; ask another container itself",
    **_argument(
        "convert",
        *_VERBS_OF_OBJECTS,
        cure="the object itself is served; onnx=True converts it, compared on the rows check=",
    ),
    "default_accept": "set the variable SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT, or send Accept",
    "error ArgumentError": "catch UsageError",
    "error ContainerRefused": "an endpoint alone answers with it; catch RunFailed",
    "error DiskFull": "an endpoint alone answers with it; catch MemoryExhausted",
    "error FileRefused": "catch UsageError, whose __cause__ is the OSError",
    "error GroupClosed": "catch AccessDenied",
    "error ManyAnswers": "catch NotSupported",
    "error ModelExists": "a container alone answers with it; catch UsageError",
    "error ModelKeyError": "catch ModelNotFound, a KeyError",
    "error ModelTooLarge": "catch MemoryExhausted, and ask for its too_large",
    "error OriginRefused": "catch AccessDenied",
    "error RunExhausted": "catch MemoryExhausted",
    "error TooManyWaiting": "catch QueueRefused",
    "error WaitsWithoutEnd": "catch RunFailed, and ask for its circle",
    "grpc_uds": "say grpc_port='unix:PATH'",
    "hint of jaxtyping": 'from workbench import Float32, and write Float32["batch", 4]',
    "hint of typing.Literal": "write the type of its values, such as str",
    **_argument("instances", "bench", cure=_CONFIG),
    **_argument("instances", *_VERBS_OF_OBJECTS, cure="say concurrent="),
    **_argument("max_batch_size", *_VERBS_OF_OBJECTS, cure="say batch="),
    "max_elements": "a tensor has at most 2^59 elements, as many as numpy holds",
    "max_image": "the images of an input take at most 256 MiB once decoded",
    "max_nesting": "the JSON of a request nests at most 100 deep",
    "model_cache": "models stay while there is room; keep_alive unloads those that are idle",
    **_argument("p99", "plan", cure="the table has the p99 of the wait with each of the budgets"),
    **_argument("rates", "bench", cure="say clients=: each waits for its answer"),
    "reload": "a model answers until its new files are loaded; where there is no room for both, "
    "unload it first",
    "response_cache": "leave it out: each request runs its model; keep answers where you ask",
    "strict_readiness": "a server is not ready while a model that load='all' was to load is "
    "broken; load on demand, and it is",
    "strict_triton": "requests that cannot be read get 400, and too large ones 413",
    **_argument("threads", "bench", cure=_CONFIG),
    "trace_file": "wb.trace has the last requests, the statistics their times; a profiler has more",
    "watch_every": "load='watch' looks every 2 s",
    "wb.save_journal": "wb.events tells each decision about memory, with its reason",
    "wb.tune": f"wb.bench measures a model; {_CONFIG}",
    **_argument("wire", "bench", cure="requests go over HTTP; time wb.infer for what that costs"),
    "workbench replay": "workbench events tells each decision about memory, with its reason",
    "workbench top": "open the address of the server in a browser, or ask workbench models",
}
"""The names, in alphabetical order; a cure is one line without a full stop."""


def no_more(what: str, *names: str) -> str:
    """``"there is no {what} any more: ..."`` if one of *names* was removed; else nothing."""
    cure = next((REMOVED[name] for name in names if name in REMOVED), "")
    return f"there is no {what} any more: {cure}" if cure else ""


def no_more_verb(what: str, verb: str) -> str:
    """As ``no_more``, of a *verb*, of Python, the shell or the magic."""
    return no_more(what, f"wb.{verb}", f"workbench {verb}")


def no_more_option(verb: str, option: str) -> str:
    """As ``no_more``, of an *option* such as ``--rates`` of a *verb*."""
    name = option.lstrip("-").replace("-", "_")
    return no_more(f"option {option}", f"{verb}({name}=)", name)
