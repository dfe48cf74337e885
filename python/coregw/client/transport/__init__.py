"""HTTP by libcurl: one kind of handle for both clients, driven by a poll loop or by an asyncio event loop.

``address`` parses a gateway's address, ``gateways`` says which of several is in use, ``options`` turns settings into
libcurl's options, ``handle`` carries one call and maps libcurl's errors, ``retries`` decides when to repeat a call,
``log`` logs it. ``blocking`` and ``asynchronous`` are the drivers; ``forks`` keeps child processes off connections.
"""
