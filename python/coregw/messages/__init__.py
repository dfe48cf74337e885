"""The JSON messages of protocol section 5 as msgspec structs.

Each struct has exactly the members that the protocol defines; unknown members are refused when decoding. `decode` also
refuses what only the JSON text shows, such as duplicate members and excessive nesting. The messages of batches, CAR
files, diffs and published records are in ``coregw.messages.batch``, ``car``, ``diff`` and ``record``.

A struct says nothing about proofs: whether a result is proven is decided by `coregw.verify_resolve` and its siblings.
"""

from coregw.extras import missing_extra

try:
    from coregw.messages.common import MAX_INTEGER, PROTOCOL_VERSION, Error, Health, Message, Readiness, decode, encode
    from coregw.messages.creation import ArcMap, CasCreated, RootCreated
    from coregw.messages.mutation import (
        Change,
        Commit,
        Delta,
        DeltaResult,
        Endpoint,
        FixedList,
        MutationReceipt,
        MutationRequest,
        TransitionRequest,
    )
    from coregw.messages.prooflist import (
        MAX_SCAN_LIMIT,
        Link,
        ListIndexStep,
        ListRangeStep,
        MapAbsenceStep,
        MapScanStep,
        MapStep,
        PayloadBindingStep,
        Prooflist,
        Step,
    )
    from coregw.messages.query import (
        ListIndexQuery,
        ListRangeQuery,
        MapKeyQuery,
        MapProofRequest,
        MapProofResult,
        ReadNotFound,
        ReadRequest,
        ReadResult,
        ResolveRequest,
        ResolveResult,
        ScanEntry,
        ScanRequest,
        ScanResult,
        Verification,
        VerifyReadRequest,
        VerifyResolveRequest,
    )
except ModuleNotFoundError as error:
    raise missing_extra(error, "coregw.messages", "client") from error

__all__ = [
    "MAX_INTEGER",
    "MAX_SCAN_LIMIT",
    "PROTOCOL_VERSION",
    "ArcMap",
    "CasCreated",
    "Change",
    "Commit",
    "Delta",
    "DeltaResult",
    "Endpoint",
    "Error",
    "FixedList",
    "Health",
    "Link",
    "ListIndexQuery",
    "ListIndexStep",
    "ListRangeQuery",
    "ListRangeStep",
    "MapAbsenceStep",
    "MapKeyQuery",
    "MapProofRequest",
    "MapProofResult",
    "MapScanStep",
    "MapStep",
    "Message",
    "MutationReceipt",
    "MutationRequest",
    "PayloadBindingStep",
    "Prooflist",
    "ReadNotFound",
    "ReadRequest",
    "ReadResult",
    "Readiness",
    "ResolveRequest",
    "ResolveResult",
    "RootCreated",
    "ScanEntry",
    "ScanRequest",
    "ScanResult",
    "Step",
    "TransitionRequest",
    "Verification",
    "VerifyReadRequest",
    "VerifyResolveRequest",
    "decode",
    "encode",
]
