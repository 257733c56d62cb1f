"""Every error we raise on purpose, in one tree, so that a caller catches as much or as little as it wants.

TestbedError                what the command line catches; carries the exit code
|-- UserError               2  the user asked for something that does not exist or cannot be: names it and what would do
|   `-- UnknownName         2  a name that is in none of our registries: lists those that are
|-- MissingFeature          3  the machine lacks something: names it and the remedy
|-- RunFailed               1  the run started and did not end well (a rank died, a bound broke, a switch never came)
`-- InternalError           1  our own bug: a state that the code promises never to reach

It lives in the lowest layer because every layer raises from it.  The names say what happened, without an Error suffix.
"""

from collections.abc import Iterable


class TestbedError(Exception):
    """The base of everything that this project raises on purpose."""

    __test__ = False  # pytest would take the name for a test class
    exit_code = 1


class UserError(TestbedError):
    """The user's mistake: an unknown key, a value out of range, a malformed unit.  The message says what would do."""

    exit_code = 2


class UnknownName(UserError):  # noqa: N818
    """A name that a registry does not hold."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        """`kind` is what was looked up ('topology', 'policy'); `known` are the names that would have worked."""
        self.kind, self.name, self.known = kind, name, tuple(sorted(known))
        super().__init__(f"unknown {kind} '{name}'; known: {', '.join(self.known) or 'none'}")


class MissingFeature(TestbedError):  # noqa: N818
    """The machine cannot do what was asked: `feature` is absent, `remedy` is how to get it."""

    exit_code = 3

    def __init__(self, feature: str, remedy: str) -> None:
        """Both are shown to the user, in one sentence each."""
        self.feature, self.remedy = feature, remedy
        super().__init__(f"{feature}; {remedy}")


class RunFailed(TestbedError):  # noqa: N818
    """The run began and failed; nothing of it may be published as a result."""


class InternalError(TestbedError):
    """A promise of our own code broke: please report it."""
