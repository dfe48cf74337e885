"""The gateway's routes, one module for each group; a module's name is its tag in the OpenAPI document.

Each module declares its hot routes in ``hot`` and those that Litestar serves in ``handlers``. `coregw.gateway.app`
puts them together.
"""
