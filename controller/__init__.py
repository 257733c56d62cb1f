"""DECIDE how packets travel: the OpenFlow application, pure forwarding and path code, one policy per file."""
