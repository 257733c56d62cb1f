"""Switch ports and NICs: the interface, and one kind of port per file."""
