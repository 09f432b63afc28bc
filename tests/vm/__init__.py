"""agentd in a real virtual machine. Run by name, `pytest tests/vm`: `pytest` alone boots nothing."""
