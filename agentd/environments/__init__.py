"""The face of an environment: commands, files and background processes of one user in this VM."""
