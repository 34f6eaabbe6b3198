"""``python -m workbench``, the same as ``workbench``."""

from workbench.commands.cli import main

main(prog_name="workbench")
