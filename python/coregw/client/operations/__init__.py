"""The client's operations, one module a route: what to send, and what to verify in the answer.

Sans-I/O, shared by `Client` and `AsyncClient`: an operation is a generator (see ``steps``) that yields calls and is
sent their answers. It returns only values that are proven or that were recomputed here.
"""
