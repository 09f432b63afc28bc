"""The recipe's parts that need no root and no network; `tests/vm` builds and boots the whole."""
