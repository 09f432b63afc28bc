"""What must not be seen: the denylist and the protection globs, for one path and for all that is below a directory."""

from collections.abc import Callable

from attrs import field, frozen

from agentd.rules.jail import Verdict, below, judge, names_within, relative
from agentd.worker.globs import Globs


@frozen
class Protection:
    """The denylist, canonical, and the globs, which are about what a path is called from each of `roots`."""

    roots: tuple[bytes, ...]
    denied: tuple[bytes, ...]
    globs: Globs = field(repr=False)

    def denies(self, path: bytes) -> bool:
        """Whether a canonical path is on the denylist, or below something there."""
        return judge(path, (), self.denied) is not Verdict.ALLOWED

    def holds_denied(self, path: bytes) -> bool:
        """Whether something on the denylist is a canonical path, or below it."""
        return any(below(denied, path) for denied in self.denied)

    def protects(self, path: bytes) -> bool:
        """Whether a glob matches a canonical path."""
        return bool(self.globs) and any(map(self.globs.matches, names_within(path, self.roots)))

    def hides(self, path: bytes) -> bool:
        """Whether a canonical path is denied or protected."""
        return self.denies(path) or self.protects(path)

    def hidden_below(self, top: bytes) -> Callable[[bytes], bool]:
        """`hides` for paths relative to the canonical directory `top`: what can be known before is, as it is asked
        for each entry of a walk. The empty path is `top` itself.
        """
        if self.denies(top):
            return lambda path: True
        denied = tuple(relative(each, top) for each in self.denied if below(each, top))
        prefixes = tuple(name + b"/" if name else b"" for name in names_within(top, self.roots))
        matches = self.globs.matches
        if not self.globs:
            prefixes = ()

        def hidden(path: bytes) -> bool:
            if not path:
                return self.protects(top)
            return any(below(path, each) for each in denied) or any(
                matches(prefix + path) for prefix in prefixes
            )

        # One root is what nearly everybody has.
        if not denied and len(prefixes) == 1:
            (only,) = prefixes
            return lambda path: matches(only + path) if path else self.protects(top)
        return hidden
