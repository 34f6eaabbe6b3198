# Everything a person needs, on a machine that has only Python: make demo, make test, make lab.
# PYTHON chooses the interpreter (3.11 or newer); all that is installed lands in .venv, in
# .venv-clients what only the tests use and what does not go well with the rest, and in
# .venv-frameworks PyTorch, transformers and MLflow.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
CLIENTS := .venv-clients
CLIENTS_INSTALLED := $(CLIENTS)/installed
FRAMEWORKS := .venv-frameworks
FRAMEWORKS_INSTALLED := $(FRAMEWORKS)/installed
# PyTorch's build for the CPU alone, 190 MB; other indexes than its own have builds of gigabytes, for GPUs
TORCH ?= torch==2.13.0+cpu
FRAMEWORKS_TESTS := tests/objects/test_frameworks.py tests/annexes/conversion/test_module_conversions.py tests/objects/test_serve_page.py \
	"tests/notebook/test_shipped_notebooks.py::test_runs_headless[pytorch]" \
	"tests/test_docs.py::test_python_blocks_run[tutorial_torch]" "tests/test_docs.py::test_python_blocks_run[from_mlflow]"
KERNELS := 6.29.5 6.31.0
KERNELS_TESTS := tests/notebook/test_kernel.py tests/browser/test_dashboard_in_lab.py

.DEFAULT_GOAL := help
.PHONY: help setup clients frameworks sagemaker-sdk demo test suite beside fuzz lint check lab notebooks test-gpu test-kernels test-peers test-images bench bench-serving bench-memory bench-scale bench-batching bench-multi-model bench-gpu clean

help:
	@echo "make demo     set everything up and see it work on real data"
	@echo "make test     set everything up and run the checks and tests"
	@echo "make fuzz     look for faults in what is read, with ten times as many examples: half an hour"
	@echo "make lab      open JupyterLab on notebooks/quickstart.ipynb"
	@echo "make docs     build the documentation into build/docs"
	@echo "make notebooks  run the notebooks, and keep their outputs"
	@echo "make check    only lint, types and import rules"
	@echo "make bench    measure the figures of README.md, and write them there"
	@echo "make bench-serving"
	@echo "              measure the server beside its peers, which it installs: 20 minutes, with wrk"
	@echo "make bench-memory"
	@echo "              measure loads and evictions: a few minutes, 3 GB of disk"
	@echo "make bench-scale"
	@echo "              measure repositories of up to ten thousand models: a minute"
	@echo "make bench-batching"
	@echo "              measure what dynamic batching gives: two minutes, with wrk"
	@echo "make bench-multi-model"
	@echo "              measure SageMaker's contract beside multi-model-server: five minutes, with Java and wrk"
	@echo "make bench-gpu  measure memory and speed on a GPU, into benchmarks/GPU.md"
	@echo "make sagemaker-sdk"
	@echo "              install SageMaker's SDK (300 MB) for the tests that ask with it"
	@echo "make test-kernels"
	@echo "              run the tests of notebooks under each line of ipykernel that is supported: two minutes"
	@echo "make test-images"
	@echo "              build the images of deploy/ with buildah, as root, and run them: three minutes"
	@echo "make clean    remove what was made, .venv, .venv-clients and .venv-frameworks included"

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c '' 2>/dev/null || { echo "workbench: '$(PYTHON)' does not run here: install Python 3.11 or newer, or say PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "workbench: Python 3.11 or newer is needed, '$(PYTHON)' is $$($(PYTHON) -c 'import platform; print(platform.python_version())'): say PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "workbench: Python's venv module is missing: install it (on Debian and Ubuntu: apt install python3-venv)"; exit 1; }
	@echo "setting up $(VENV), once: about 400 MB to download, a minute or a few"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,lab]'
	@touch $(INSTALLED)

clients: $(CLIENTS_INSTALLED)

# KServe's client wants older versions of what .venv has (protobuf, psutil, dateutil), both clients and
# the validator bring pydantic, which litestar would then load into the server under test, and
# schemathesis a pytest plugin that slows the start of every run of the tests. multi-model-server (8 MB)
# is AWS's own container, which the tests drive where there is Java.
$(CLIENTS_INSTALLED): tests/contract/clients.txt | $(INSTALLED)
	@echo "setting up $(CLIENTS), once: the clients of other projects, half a minute or more"
	@$(BIN)/python -m venv $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint tests/contract/clients.txt boto3 kserve multi-model-server open-inference-openapi openapi-spec-validator schemathesis
	@touch $(CLIENTS_INSTALLED)

frameworks: $(FRAMEWORKS_INSTALLED)

# It sees the packages of .venv, and adds 1.2 GB. Without that build of PyTorch the tests of it are skipped.
$(FRAMEWORKS_INSTALLED): tests/objects/frameworks.txt | $(INSTALLED)
	@echo "setting up $(FRAMEWORKS), once: PyTorch, transformers and MLflow, 280 MB to download, some minutes"
	@$(BIN)/python -m venv $(FRAMEWORKS)
	@packages=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	echo "import site; site.addsitedir('$$packages')" > "$$($(FRAMEWORKS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/venv.pth"
	@if $(FRAMEWORKS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --constraint tests/objects/frameworks.txt $(TORCH) mlflow-skinny onnxscript transformers; \
	then touch $(FRAMEWORKS_INSTALLED); \
	else echo "no PyTorch: its tests are skipped; with pip's own index, which has a build of gigabytes: make frameworks TORCH=torch"; fi

# The SDK is 300 MB: make test does without it, and skips the tests that ask with it.
sagemaker-sdk: setup
	$(BIN)/python -m venv .venv-sagemaker
	.venv-sagemaker/bin/python -m pip install --quiet --disable-pip-version-check --constraint tests/contract/sagemaker.txt 'sagemaker<3' boto3

demo: setup
	@$(BIN)/workbench demo

# Bytecode is kept, whatever the environment says: collecting the tests takes half as long with it.
#
# The tests of frameworks and mypy have one process: they run beside the other tests, and what they
# print comes last.
test: export PYTHONDONTWRITEBYTECODE =
test: lint clients frameworks
	@mkdir -p build
	@$(MAKE) --no-print-directory --jobs 2 --keep-going suite beside; status=$$?; cat build/beside.log; exit $$status

suite:
	$(BIN)/python -m pytest -n 2

beside:
	@{ $(BIN)/mypy && { test ! -e $(FRAMEWORKS_INSTALLED) || $(FRAMEWORKS)/bin/python -m pytest $(FRAMEWORKS_TESTS); }; } >build/beside.log 2>&1

# Many more examples of what hypothesis and schemathesis make up, and in the second line others each time: for by hand.
fuzz: check clients
	FUZZ_TIMES=10 $(BIN)/python -m pytest --timeout 3600 tests/fuzz $(wildcard tests/annexes/*/test_fuzz_*.py) tests/contract/test_schemathesis.py
	$(BIN)/python -m pytest --timeout 3600 --hypothesis-profile random tests/residency/test_residency_machine.py tests/backends/test_onnx_file.py

# The same notebook under the other lines of ipykernel that pyproject.toml allows; .venv has the newest.
test-kernels: setup
	@for version in $(KERNELS); do \
		folder=build/kernels/$$version; \
		test -e $$folder/installed || { $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $$folder ipykernel==$$version nest-asyncio && touch $$folder/installed; } || exit 1; \
		echo "ipykernel $$version"; \
		PYTHONPATH=$$PWD/$$folder$${PYTHONPATH:+:$$PYTHONPATH} $(BIN)/python -m pytest -n 2 --dist loadfile $(KERNELS_TESTS) || exit 1; \
	done

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

check: lint
	$(BIN)/mypy

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# One asks with boto3, of which $(CLIENTS) has what $(VENV) lacks.
notebooks: frameworks clients
	@mkdir -p build/boto3
	@for each in boto3 botocore jmespath s3transfer; do ln -sfn $(CURDIR)/$(CLIENTS)/lib/python3*/site-packages/$$each build/boto3/; done
	PYTHONPATH=$(CURDIR)/build/boto3 $(FRAMEWORKS)/bin/python docs/run_notebooks.py

lab: setup
	$(BIN)/jupyter lab $(LAB_ARGS) notebooks/quickstart.ipynb

# Other projects' servers beside ours, which fail by themselves now and then under load.
test-peers: setup clients
	$(BIN)/python -m pytest -m peer -rs

# It takes root, buildah, and debootstrap where the base image cannot be pulled: some minutes, 10 GB of disk.
test-images: setup
	@command -v buildah >/dev/null || { echo "workbench: buildah is missing: install it (on Debian and Ubuntu: apt install buildah debootstrap)"; exit 1; }
	$(BIN)/python -m pytest -m image -rs

test-gpu: setup
	$(BIN)/python -m pytest -m gpu -rs

bench: setup
	$(BIN)/python benchmarks/quick.py --write

bench-serving: setup clients
	$(BIN)/python benchmarks/serving.py --write $(BENCH_ARGS)

bench-memory: setup
	$(BIN)/python benchmarks/evictions.py --write
	$(BIN)/python benchmarks/life.py --write

bench-scale: setup
	$(BIN)/python benchmarks/scale.py --write

bench-batching: setup
	$(BIN)/python benchmarks/batching.py --write

bench-multi-model: setup
	$(BIN)/python benchmarks/multi_model.py --write

bench-gpu: setup
	$(BIN)/python benchmarks/gpu.py --write

clean:
	rm -rf $(VENV) $(CLIENTS) $(FRAMEWORKS) .venv-sagemaker build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
