"""What the network is: fabrics as pure data, with generators, a file format, graph questions and drawings."""
