"""How a function fails: with a code of its own, or plainly.

The worker contract knows two shapes (reference A5). A *coded* failure carries an S-code as its code. A *plain* one is
`invocation_failed` with a text; a prefix tells whether the function failed or its request did not fit. The `coder::*`
functions fail plainly too: their text is the JSON of a C-code and a message, which existing callers look for.
"""

import json
from typing import Final

INVOCATION_FAILED: Final = "invocation_failed"


class FunctionError(Exception):
    """A function's answer to its caller, instead of a result: `code` and `message` as they go on the wire."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Coded(FunctionError):
    """A failure with a code of its own: S2xx, or one that another worker gave."""


class Plain(FunctionError):
    """A failure that only has a text. Its code is `invocation_failed`."""

    def __init__(self, message: str, prefix: str = "handler error: ") -> None:
        super().__init__(INVOCATION_FAILED, prefix + message)


class Misfit(Plain):
    """A request that does not fit the declared type."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "serialization error: ")


class CoderError(Plain):
    """A failure of a whole `coder::*` call, or of one entry of a batch: `coder_code` C2xx and `text`."""

    def __init__(self, coder_code: str, text: str) -> None:
        super().__init__(json.dumps({"code": coder_code, "message": text}, ensure_ascii=False))
        self.coder_code = coder_code
        self.text = text


class BootFailed(Exception):
    """The worker cannot start; the text says why."""
