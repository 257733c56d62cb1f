"""What `./run` prepares before anything can run: the virtual environment and the guest kernel.

Everything here needs nothing but the system's own Python: it runs when there is no virtual environment yet.
"""
