"""The JSON messages of protocol section 5 as msgspec structs.

Each struct has exactly the members that the protocol defines; unknown members are refused when decoding. `decode` also
refuses what only the JSON text shows, such as duplicate members and excessive nesting. The messages of batches, CAR
files, diffs and published records are in ``coregw.messages.payloads``, ``car``, ``diff`` and ``record``.

A struct says nothing about proofs: whether a result is proven is decided by `coregw.verify_resolve` and its siblings.
"""

from coregw.extras import missing_extra

try:
    from coregw.messages.common import (
        MAX_INTEGER,
        PROTOCOL_VERSION,
        ErrorBody,
        Health,
        Message,
        Readiness,
        decode,
        encode,
    )
    from coregw.messages.query import (
        MAX_SCAN_LIMIT,
        Link,
        ListIndexQuery,
        ListIndexStep,
        ListRangeQuery,
        ListRangeStep,
        MapAbsenceStep,
        MapKeyQuery,
        MapProofRequest,
        MapProofResult,
        MapScanStep,
        MapStep,
        PayloadBindingStep,
        Prooflist,
        ReadNotFound,
        ReadRequest,
        ReadResult,
        ResolveRequest,
        ResolveResult,
        ScanEntry,
        ScanRequest,
        ScanResult,
        Step,
        Verification,
        VerifyReadRequest,
        VerifyResolveRequest,
    )
    from coregw.messages.roots import (
        ArcMap,
        CasCreated,
        Change,
        Commit,
        Delta,
        DeltaResult,
        Endpoint,
        FixedList,
        MutationReceipt,
        MutationRequest,
        RootCreated,
        TransitionRequest,
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
    "ErrorBody",
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
