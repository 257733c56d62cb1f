"""Execution traces in Chakra's schema: read, checked, played on the fabric, and written from what a run did."""
