"""The policies by the name that commands, manifests and plots use: `ecmp:seed=3,polarised=yes`."""

from collections.abc import Mapping
from types import MappingProxyType

from controller.policies.base import Policy
from controller.policies.e_ecmp import EEcmp
from controller.policies.ecmp import Ecmp
from controller.policies.flowlet import Flowlet
from controller.policies.pinned import Pinned
from controller.policies.single import Single
from controller.policies.spray import Spray
from controller.policies.te import Te
from controller.policies.up_down import UpDown
from controller.policies.wcmp import Wcmp
from topologies.errors import UnknownName
from topologies.registry import parse_parameters

_ALL = (Ecmp, EEcmp, Flowlet, Spray, Pinned, Te, Wcmp, Single, UpDown)
POLICIES: Mapping[str, type[Policy]] = MappingProxyType({policy.name: policy for policy in _ALL})
"""Name -> policy, in the order `./run list` shows them."""


def parse_policy(spec: str) -> Policy:
    """The policy that `NAME[:key=value,...]` asks for.

    Raises UserError naming what is wrong; UnknownName for a policy or parameter that does not exist.
    """
    name, _, rest = spec.strip().partition(":")
    if name not in POLICIES:
        raise UnknownName("policy", name, POLICIES)
    return POLICIES[name].parse(parse_parameters(rest, where=f"policy {name}"))
