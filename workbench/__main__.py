"""``python -m workbench``, the same as ``workbench``."""

from workbench.cli import main

main(prog_name="workbench")
