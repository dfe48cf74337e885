"""Metrics: what each process counts, their sum over all processes, and the Prometheus exposition.

Hot paths change plain integers (`coregw.counters`). When somebody scrapes, they become `Sample` objects; workers send
theirs to the owner of the store every second. `coregw.gateway.metrics.families` declares every metric.
"""
