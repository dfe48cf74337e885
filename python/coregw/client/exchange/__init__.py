"""One HTTP exchange as values: the call, an attempt at it, and the exception that an error answer maps to.

Sans-I/O: `coregw.client.transport` moves the bytes. A gateway's text is untrusted: it is bounded and made printable
before it becomes part of a message.
"""
