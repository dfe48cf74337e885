"""The maintenance routes, ``/admin/v1/maintenance/<verb>``; one module for each group.

Each module declares its routes in ``handlers``, as Litestar handlers with paths below that prefix, over logic that
lives in the engine or the store. `coregw.gateway.management` puts the groups together, and serves them on the
management addresses only. A long operation returns what `Operations.stream` does
(`coregw.gateway.maintenance.operations`).
"""
