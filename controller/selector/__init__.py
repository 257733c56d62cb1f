"""The first switch picks the whole path of a packet: a tc BPF program on its host-facing ports, and its tables."""
