"""Both OpenFlow frameworks, and a path selector in this machine's kernel where that is allowed."""

from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from controller import compat
from controller.compat import Framework
from controller.selector.build import built
from controller.selector.selector import Selector
from topologies.errors import MissingFeature


@pytest.fixture(params=sorted(compat.FRAMEWORKS))
def framework(request: pytest.FixtureRequest) -> Framework:
    """Each framework in turn; both must be installed here."""
    return compat.load(request.param)


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled selector; skips where there is no compiler."""
    try:
        return built(cache=tmp_path_factory.mktemp("bpf"))
    except MissingFeature as error:
        pytest.skip(str(error))


@pytest.fixture
def load(program: Path) -> Iterator[Callable[..., Selector]]:
    """Loads selectors that are gone afterwards; skips where the kernel or our rights do not allow it."""
    loaded: list[Selector] = []

    def load_one(leaf_of: dict[IPv4Address, str], flows: int = 1 << 14) -> Selector:
        try:
            loaded.append(Selector(program, leaf_of, flows=flows))
        except MissingFeature as error:
            pytest.skip(str(error))
        return loaded[-1]

    yield load_one
    for each in loaded:
        each.close()
