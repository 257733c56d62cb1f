"""Make it real: the guest, its kernel, links, ports, workers, captures; the only layer that touches a kernel."""
