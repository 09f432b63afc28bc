"""`agentd.vm` without a machine: command lines, the protocol, the records. With machines: `tests/vm`."""
