"""Ours as SageMaker starts a container: ``python serve_container.py FOLDER PORT``."""

from __future__ import annotations

import os
import sys

from workbench.commands.cli import main

os.environ |= {"SAGEMAKER_MULTI_MODEL": "true", "SAGEMAKER_BIND_TO_PORT": sys.argv[2]}
main(["serve", "--device", "cpu", "--token", "off"])
