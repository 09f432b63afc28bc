"""`agentctl`: the client library on a terminal.

Nothing here speaks HTTP; every command is a few calls of `agentd.client` and what a person or a script wants
to see of them. `agentd.cli.exits` lists what a status means.
"""
