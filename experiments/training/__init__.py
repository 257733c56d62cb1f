"""Training loops on the fabric: real torch code in the ranks, a GPU's time modelled by sleeping."""
