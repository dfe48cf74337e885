"""The contract of `coregw.store.Store` as a pytest suite, for stores of third parties too. Needs pytest and anyio.

Subclass the two classes in a test module, and define the fixtures that make your store:

```python
import pytest
from coregw.store.testing import FullStoreContract, StoreContract

class TestMyStore(StoreContract):
    @pytest.fixture
    async def store(self):
        async with await open_my_store() as store:   # empty
            yield store

class TestMyFullStore(FullStoreContract):
    @pytest.fixture
    async def full_store(self):
        async with await open_my_store(quota=0) as store:   # refuses every write for lack of room
            yield store
```

For readable assertion failures, call ``pytest.register_assert_rewrite("coregw.store.testing")`` in your ``conftest.py``
before the first import. What the suite cannot test is durability: kill your store's process, and cut its power, too.
"""

from coregw.store.testing.collections import CollectionContract, RenewalContract
from coregw.store.testing.lifecycle import FullStoreContract, LifecycleContract
from coregw.store.testing.payloads import PayloadContract
from coregw.store.testing.rows import RowContract

__all__ = [
    "CollectionContract",
    "FullStoreContract",
    "LifecycleContract",
    "PayloadContract",
    "RenewalContract",
    "RowContract",
    "StoreContract",
]


class StoreContract(RowContract, PayloadContract, RenewalContract, LifecycleContract):
    """The whole contract of an empty store with room: subclass it and define the fixture `store`.

    A store whose garbage can be collected (`coregw.store.collection`) also keeps `CollectionContract`.
    """
