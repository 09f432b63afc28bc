"""`demo`: the whole way once, on this machine, leaving nothing behind. Written below."""

import click


@click.command()
def demo() -> int:
    """x"""
    return 0
