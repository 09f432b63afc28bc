"""The command group: what there is, and how a failure before any command ends."""

import os
import sys
from collections.abc import Callable
from typing import Any

import click

from agentd._version import VERSION
from agentd.cli import exits
from agentd.cli.copy import cat, cp
from agentd.cli.demo import demo
from agentd.cli.environments import env
from agentd.cli.forward import forward
from agentd.cli.machine import bootstrap, health, ps, schema
from agentd.cli.options import common
from agentd.cli.run import kill, logs, run
from agentd.cli.session import DEFAULT_URL, Session
from agentd.cli.vm import vm


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="agentctl")
@common
def agentctl() -> None:
    """Drive the agentd daemon inside a virtual machine.

    The address and the token come from --url and --token (or --token-file), or from AGENTD_URL and AGENTD_TOKEN.
    A failure is one line on standard error. Exit status: 1 refused, 2 usage, 69 unreachable, 74 local I/O,
    75 try later, 76 protocol, 77 credential; run exits as its command does, with 128 + n for signal n.
    """


for _command in (health, run, ps, logs, kill, schema, bootstrap, cp, cat, forward, env, demo, vm):
    agentctl.add_command(_command)


def run_app(arguments: list[str], reactor: Callable[[], Any]) -> int:
    """Run one command line and return the exit status.

    Args:
        arguments: the words after the program's name.
        reactor: called for the Twisted reactor when a command needs it.
    """
    session = Session(
        reactor, url=os.environ.get("AGENTD_URL") or DEFAULT_URL, token=os.environ.get("AGENTD_TOKEN") or None
    )
    try:
        status = agentctl.main(args=arguments, prog_name="agentctl", standalone_mode=False, obj=session)
        return status if isinstance(status, int) else exits.OK
    except click.exceptions.NoArgsIsHelpError as fault:
        print(fault.format_message(), file=sys.stderr)
        return exits.USAGE
    except click.ClickException as fault:
        return session.fail(exits.Refusal(" ".join(fault.format_message().split()), exits.USAGE))
    except click.Abort:
        return exits.SIGNALLED + 2
    except (OSError, ValueError) as fault:
        return session.fail(fault)
