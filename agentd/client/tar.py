from typing import Any


class Tar:
    def __init__(self, transport: Any) -> None: ...
