"""The sample plant store: a small HTTP service of its own, version 1.0.0, that keeps plants by their ids.

`coregw.plants.service` runs it alone or in front of a gateway, `coregw.plants.app` is it. It shares the gateway's
store, sockets, limits and strictness, and nothing of its protocol: its messages, errors and document are its own.
Importing this package imports no web framework; its modules do.
"""
