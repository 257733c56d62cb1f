"""WHAT pauses do, one scenario a file: incast, a victim, the pause tree, a storm, a deadlock."""
