"""Tests of `agentd.files`: real files, real threads."""
