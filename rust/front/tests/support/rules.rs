//! What servers of tests hold their clients to, and how long tests wait.
#![allow(dead_code, reason = "each test program uses only some of these items")]

use std::sync::Arc;
use std::time::Duration;

use coregw_front::framing::Limits;
use coregw_front::guard::Deadlines;
use coregw_front::origins::Origins;
use coregw_front::pace::Rate;
use coregw_front::peers::Shares;
use coregw_front::problem::Codes;
use coregw_front::server::Rules;

/// Nothing that a test waits for takes longer, on any machine.
pub const SOON: Duration = Duration::from_secs(30);

/// Waits until something is so, which another thread or task brings about.
pub async fn until(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(SOON, waiting).await.expect("in time");
}

/// The codes of errors, as the application gives them.
pub fn codes() -> Codes {
    Codes::new([
        ("invalid_request", 400),
        ("invalid_cid", 400),
        ("invalid_codec", 400),
        ("invalid_path", 400),
        ("unknown_profile", 400),
        ("kind_mismatch", 400),
        ("forbidden_origin", 403),
        ("root_not_found", 404),
        ("path_not_found", 404),
        ("payload_not_found", 404),
        ("page_not_found", 404),
        ("precondition_failed", 412),
        ("too_large", 413),
        ("unsupported_media_type", 415),
        ("range_not_satisfiable", 416),
        ("misdirected_request", 421),
        ("internal", 500),
        ("unavailable", 503),
        ("storage_full", 507),
        ("before_mismatch", 409),
        ("expected_root_mismatch", 409),
    ])
}

/// Rules for clients that take less than `patience` over everything.
pub fn rules(patience: Duration) -> Rules {
    let rate = Rate { bytes_per_second: 0, grace: patience, pause: patience };
    let (head, idle, body_whole, drain) = (patience, patience, patience, patience);
    Rules {
        origins: Origins::new("auto", "none", "127.0.0.1").expect("hosts"),
        codes: codes(),
        limits: Limits { head_bytes: 16 << 10, fields: 100 },
        deadlines: Deadlines { head, idle, body: rate, body_whole, read: rate, drain },
        shares: Shares { connections: 1000, per_address: 1000, unsent: 1 << 30 },
        proxies: Arc::default(),
    }
}
