"""Makes ``twistd agentd`` exist. Imported by every ``twistd`` start, so it holds nothing else."""

from twisted.application.service import ServiceMaker

agentd = ServiceMaker(
    "agentd",
    "agentd.tap",
    "Run commands, move files and open connections for the world outside this virtual machine.",
    "agentd",
)
