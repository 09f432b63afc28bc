"""The face that speaks microvms-agentd wire protocol v1: shapes, routes and translation, nothing else."""
