"""Connections to the servers of a database: which server, what survives losing one, and what errors mean.

```
database   pool of connections to the primary; repeats calls
replicas   connections to a standby, which may answer reads of pages
hosts      which of several servers is connected to
errors     what is repeated, and coregw's exception for each error
```
"""
