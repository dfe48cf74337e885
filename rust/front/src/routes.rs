//! Which requests the front answers itself, by method and path.
//!
//! Paths are decoded once and then normalised, exactly as the application routes them: `/v1//resolve/` is `/v1/resolve`,
//! and so is `/v1/%72esolve`. All other requests are the application's, those with another method of the same paths included.
//!
//! | method | path |
//! |---|---|
//! | POST | `/v1/resolve`, `/v1/resolve/batch`, `/v1/read`, `/v1/map-proof`, `/v1/scan` |
//! | POST | `/v1/verify/resolve`, `/v1/verify/read` |
//! | POST | `/v1/cas`, `/v1/roots` (JSON), `/v1/roots/{root}/mutations`, if the client may write; of roots and mutations, short ones |
//! | POST | `/v1/cas/has`, if it renews nothing; `/v1/cas/car`, `/v1/pages/car` |
//! | GET, HEAD | `/v1/resolve/{root}`, `/v1/read/{root}`, `/v1/map-proof/{root}`, `/v1/scan/{root}` |
//! | GET, HEAD | `/v1/cas/{cid}`, `/v1/pages/{digest}`, `/v1/roots/{root}` |

use std::borrow::Cow;

/// What a hot request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hot {
    /// A path, with proofs.
    Resolve,
    /// Many paths of one root.
    ResolveBatch,
    /// A key, an element or a range.
    Read,
    /// Whether keys are in a map.
    MapProof,
    /// The arcs of a map, page by page.
    Scan,
    /// Whether a result of a resolve is proven.
    VerifyResolve,
    /// Whether a result of a read is proven.
    VerifyRead,
    /// Storing a payload.
    CasPut,
    /// Storing a map of arcs.
    CreateRoot,
    /// Changing maps and lists.
    Mutate,
    /// Which payloads are held.
    CasHas,
    /// Payloads as a CAR.
    CasCar,
    /// Pages as a CAR.
    PagesCar,
    /// [`Hot::Resolve`] by URL, of this root.
    ResolveOf,
    /// [`Hot::Read`] by URL, of this root.
    ReadOf,
    /// [`Hot::MapProof`] by URL, of this root.
    MapProofOf,
    /// [`Hot::Scan`] by URL, of this root.
    ScanOf,
    /// A payload.
    Payload,
    /// A page.
    Page,
    /// The page of a root.
    Root,
}

impl Hot {
    /// All of them.
    pub const ALL: [Hot; 20] = [
        Hot::Resolve,
        Hot::ResolveBatch,
        Hot::Read,
        Hot::MapProof,
        Hot::Scan,
        Hot::VerifyResolve,
        Hot::VerifyRead,
        Hot::CasPut,
        Hot::CreateRoot,
        Hot::Mutate,
        Hot::CasHas,
        Hot::CasCar,
        Hot::PagesCar,
        Hot::ResolveOf,
        Hot::ReadOf,
        Hot::MapProofOf,
        Hot::ScanOf,
        Hot::Payload,
        Hot::Page,
        Hot::Root,
    ];

    /// Its path, as descriptions, metrics and logs name it. One of its segments may be a parameter.
    pub fn template(self) -> &'static str {
        match self {
            Hot::Resolve => "/v1/resolve",
            Hot::ResolveBatch => "/v1/resolve/batch",
            Hot::Read => "/v1/read",
            Hot::MapProof => "/v1/map-proof",
            Hot::Scan => "/v1/scan",
            Hot::VerifyResolve => "/v1/verify/resolve",
            Hot::VerifyRead => "/v1/verify/read",
            Hot::CasPut => "/v1/cas",
            Hot::CreateRoot => "/v1/roots",
            Hot::Mutate => "/v1/roots/{root}/mutations",
            Hot::CasHas => "/v1/cas/has",
            Hot::CasCar => "/v1/cas/car",
            Hot::PagesCar => "/v1/pages/car",
            Hot::ResolveOf => "/v1/resolve/{root}",
            Hot::ReadOf => "/v1/read/{root}",
            Hot::MapProofOf => "/v1/map-proof/{root}",
            Hot::ScanOf => "/v1/scan/{root}",
            Hot::Payload => "/v1/cas/{cid}",
            Hot::Page => "/v1/pages/{digest}",
            Hot::Root => "/v1/roots/{root}",
        }
    }

    /// The number of it among [`Hot::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// Whether it is asked by URL: with GET or HEAD.
    pub fn is_by_url(self) -> bool {
        self.template().ends_with('}')
    }
}

/// A path as it is routed, decoded once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// What is asked for.
    pub hot: Hot,
    /// The segment that is a parameter; empty if there is none.
    pub parameter: String,
}

/// The hot route of a request, given its method and the path of its target; None if the application answers it. O(bytes).
pub fn find(method: &str, raw_path: &str) -> Option<Route> {
    let is_by_url = match method {
        "GET" | "HEAD" => true,
        "POST" => false,
        _ => return None,
    };
    let path = decoded(raw_path);
    let path = normalized(&path);
    // A path without a parameter comes before one whose last segment could be anything, whatever the methods.
    if let Some(hot) = fixed(&path) {
        return (!is_by_url).then_some(Route { hot, parameter: String::new() });
    }
    let (hot, parameter) = parametrised(&path)?;
    (hot.is_by_url() == is_by_url).then(|| Route { hot, parameter: parameter.to_owned() })
}

fn fixed(path: &str) -> Option<Hot> {
    Hot::ALL.into_iter().find(|hot| hot.template() == path && !path.contains('{'))
}

fn parametrised(path: &str) -> Option<(Hot, &str)> {
    Hot::ALL.into_iter().find_map(|hot| {
        let (before, rest) = hot.template().split_once('{')?;
        let (_, after) = rest.split_once('}')?;
        let parameter = path.strip_prefix(before)?.strip_suffix(after)?;
        (!parameter.is_empty() && !parameter.contains('/')).then_some((hot, parameter))
    })
}

/// A path with its percent-encoding undone, once. Bytes that are not UTF-8 become U+FFFD, and what is no encoding stays.
pub fn decoded(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    Cow::Owned(String::from_utf8_lossy(&unescaped(path.as_bytes(), false)).into_owned())
}

/// The bytes of percent-encoded text. What is no encoding stays; a plus is a space in queries.
pub(crate) fn unescaped(text: &[u8], in_query: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let escaped = match (first, after) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(if in_query && *first == b'+' { b' ' } else { *first });
                rest = after;
            }
        }
    }
    bytes
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// A path without empty segments and without a slash at its end.
pub fn normalized(path: &str) -> Cow<'_, str> {
    if !path.ends_with('/') && !path.contains("//") {
        return Cow::Borrowed(path);
    }
    let mut normal = String::with_capacity(path.len());
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        normal.push('/');
        normal.push_str(segment);
    }
    if normal.is_empty() {
        normal.push('/');
    }
    Cow::Owned(normal)
}
