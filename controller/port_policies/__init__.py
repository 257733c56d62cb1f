"""How ports behave: presets, one per file, and what every port of a fabric is told because of them."""
