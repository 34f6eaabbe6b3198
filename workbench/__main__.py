"""The command ``workbench``, also as ``python -m workbench``."""

import signal


def main() -> None:
    """Run the command line. Ctrl-C while it is imported ends the process, without a traceback."""
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:  # else the shell said to ignore it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from workbench.commands import cli

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main(prog_name="workbench")


if __name__ == "__main__":
    main()
