"""A witness of transparency logs (c2sp.org/tlog-witness): it cosigns checkpoints that continue what it cosigned last.

``cosigning`` checks and remembers, ``app`` is the HTTP side, on the gateway's server.
"""
