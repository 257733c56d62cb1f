"""WHAT ranks do: collective operations with their conventions, the messages gloo sends for them, measuring them."""
