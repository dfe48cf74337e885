"""The gateway's routes, one module for each group; a module's name is its tag in the OpenAPI document.

Each module declares its routes in ``handlers``. `coregw.gateway.app` puts them together.
"""
