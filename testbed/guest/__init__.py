"""The guest: a User-Mode Linux kernel on this machine's own root file system, under a virtual clock."""
