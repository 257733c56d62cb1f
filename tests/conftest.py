"""What all tests share."""

import signal

# Started in the background, as by a CI or with nohup, we would ignore SIGINT, and so would every command that a test
# starts and interrupts.  A handler, unlike being ignored, is not inherited through exec.
signal.signal(signal.SIGINT, signal.default_int_handler)
