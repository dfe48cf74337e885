"""Copies of roots from one gateway to another, by what differs.

```
                      /v1/diff, proven against both roots
 source (A) ─────────────────────────────────────────────────► client ──────── changes ────────► destination (B)
   gateway,           /v1/cas/car, each block hashed                           /v1/roots/…/mutations
   static tree ──────────────────────────────────────────────► client ──────── payloads ───────►
                                                                               /v1/car
```

Neither side is trusted. What A sends is proven or compared with its digest before B gets any of it; B forms the pages
of the new tree itself, so it need not believe what no digest covers. Payloads come first, then nested roots, the root
last.
"""
