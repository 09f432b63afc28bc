"""An explicit-state model checker over the functions of `agentd.rules`: the daemon itself, not a copy."""
