"""What a run of the checker says, for people and for machines."""
