"""Mininet's own command line on a fabric of ours: look around, ping, take a link down, start anything in any host.

      you
       |
    mininet> h1 ping -c3 h16
       |
      h1 --- leaf1 === spines === leaf4 --- h16

The question: what does this fabric do when I try something that no experiment tries?
"""

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.settings import Settings


def run(lab: Lab, settings: Settings) -> None:
    """Nothing: the fabric is up, and `--mn-cli` opens the prompt after this returns."""


EXPERIMENT = Experiment(
    name="shell",
    question="A prompt on the fabric: what happens if I try this?  (./run shell)",
    settings=Settings,
    run=run,
    needs_torch=False,
)

if __name__ == "__main__":
    main(EXPERIMENT)
