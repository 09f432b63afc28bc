"""Whether a process lives, as tests ask of processes that they did not start themselves."""


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie (proc(5)). One that goes while it is looked at is gone."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
