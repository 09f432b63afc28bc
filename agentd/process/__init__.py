"""Children: spawning into process groups, pipes to one output, escalation, deadlines, reaping."""
