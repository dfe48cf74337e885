"""Clients of static trees (docs/protocol.md, section 8): the engine of a gateway, in the process of the client.

```
client: sends, verifies ──► transport: routes of a gateway ──► engine ──► origin store ──► upstream: GET by libcurl
                                                                          checks digests
```

``upstream`` reads objects over HTTP, ``transport`` answers calls, ``blocking`` does so for the blocking client.
``export`` writes a static tree, and ``check`` compares one with its names; both through ``tree``, which ``folder`` and
``bucket`` implement and ``place`` opens. ``payloads`` copies many payloads by few requests.
"""
