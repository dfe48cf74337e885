//! The rules of HTTP that `coregw-front` defines.

use core::InputCode;
use coregw_core as core;
use coregw_front::conditions::{self, EntityBytes, Precondition, Selection};
use coregw_front::media::{self, MediaType};
use coregw_front::origins::{self, Refusal, Source};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::invalid;

/// Return the status that the preconditions of a GET or HEAD lead to: 304, 412, or None if they are met.
///
/// If-Match is evaluated first (RFC 9110 section 13.2.2). A malformed list of entity tags names none. O(bytes).
///
/// Args:
///     etag: The strong entity tag of the representation that would be sent, in quotes.
///     if_match: The value of If-Match, or None.
///     if_none_match: The value of If-None-Match, or None.
///
/// >>> precondition_status(b'"a"', None, b'W/"a"'), precondition_status(b'"a"', b'"b"', b"*")
/// (304, 412)
#[pyfunction]
#[pyo3(signature = (etag, if_match, if_none_match))]
pub fn precondition_status(etag: &[u8], if_match: Option<&[u8]>, if_none_match: Option<&[u8]>) -> Option<u16> {
    match conditions::evaluate(etag, if_match, if_none_match) {
        Precondition::Met => None,
        Precondition::NotModified => Some(304),
        Precondition::Failed => Some(412),
    }
}

/// Return the bytes that Range requests of `size` bytes, from and to (exclusive); None for all of them.
///
/// Two equal numbers mean that the range contains none of the bytes, which is a 416. All bytes are sent if Range is
/// malformed, has another unit or several ranges, or if If-Range is not `etag`. O(bytes).
///
/// Args:
///     range: The value of Range, or None.
///     if_range: The value of If-Range, or None.
///     etag: The strong entity tag of the representation, in quotes.
///     size: Its number of bytes.
///
/// >>> select_range(b"bytes=-3", None, b'"a"', 10), select_range(b"bytes=-3", b'"b"', b'"a"', 10)
/// ((7, 10), None)
#[pyfunction]
#[pyo3(signature = (range, if_range, etag, size))]
pub fn select_range(range: Option<&[u8]>, if_range: Option<&[u8]>, etag: &[u8], size: u64) -> Option<(u64, u64)> {
    match conditions::select(range, if_range, etag, size) {
        Selection::Whole => None,
        Selection::Part(part) => Some((part.start, part.end)),
        Selection::Unsatisfiable => Some((size, size)),
    }
}

/// Return the bytes of an entity that ``entity-bytes`` of a trustless gateway names, from and to (exclusive).
///
/// A part of them outside of the entity is left out.
///
/// Args:
///     text: ``FROM:TO``, both inclusive, or ``FROM:*``; negative numbers count from the end.
///     size: The number of bytes of the entity; None if it is unknown, and so is the result.
///
/// Raises:
///     InvalidInput: If `text` is malformed, or names only bytes outside of the entity.
///
/// >>> entity_bytes("4:99", 10), entity_bytes("-3:*", None)
/// ((4, 10), None)
#[pyfunction]
#[pyo3(signature = (text, size))]
pub fn entity_bytes(text: &str, size: Option<u64>) -> PyResult<Option<(u64, u64)>> {
    let refused = |why: String| {
        let shown: String = text.chars().take(100).collect();
        invalid(InputCode::InvalidRequest, format!("entity-bytes {shown:?}: {why}"))
    };
    match conditions::entity_bytes(text, size) {
        EntityBytes::Part(part) => Ok(Some((part.start, part.end))),
        EntityBytes::Unknown => Ok(None),
        EntityBytes::Malformed => Err(refused("expected FROM:TO or FROM:*, with TO not before FROM".to_owned())),
        EntityBytes::Outside => {
            Err(refused(format!("the entity has {} bytes, of which it names none", size.unwrap_or_default())))
        }
    }
}

/// Whether a Content-Type is one of some media types: with no parameter that the offer has not with the same value.
///
/// Args:
///     value: The value of Content-Type. A malformed one is none of them.
///     offers: Media types with all parameters that they may have.
///
/// Raises:
///     ValueError: If an offer is malformed.
///
/// >>> is_media_type(b'Application/JSON; charset="UTF-8"', ["application/json; charset=utf-8"])
/// True
#[pyfunction]
pub fn is_media_type(value: &[u8], offers: Vec<String>) -> PyResult<bool> {
    let offers = parsed(&offers)?;
    Ok(MediaType::parse(value).is_some_and(|given| given.is_one_of(&offers)))
}

/// Return the index of the media type that Accept wants most; None if it wants none of them.
///
/// An offer has the weight of the most specific range that names it (RFC 9110 section 12.5.1); parameters that it does
/// not have are ignored. Of offers of equal weight, the one that is named more exactly is chosen, then the one that is
/// named first, then the first offer.
///
/// Args:
///     accept: The value of Accept. Malformed ranges are ignored.
///     offers: Media types with their parameters.
///
/// Raises:
///     ValueError: If an offer is malformed.
///
/// >>> negotiate(b"text/*;q=0.5, text/csv", ["text/plain", "text/csv"])
/// 1
#[pyfunction]
pub fn negotiate(accept: &[u8], offers: Vec<String>) -> PyResult<Option<usize>> {
    Ok(media::negotiate(accept, &parsed(&offers)?))
}

fn parsed(offers: &[String]) -> PyResult<Vec<MediaType>> {
    let malformed = |text: &str| PyValueError::new_err(format!("{text:?} is not a media type"));
    offers.iter().map(|text| MediaType::parse(text.as_bytes()).ok_or_else(|| malformed(text))).collect()
}

/// Which hosts the requests to one server may name, and which web pages may write.
///
/// Args:
///     hosts: ``*``, ``auto``, or host names separated by commas. ``auto`` allows all hosts, but on loopback only
///         addresses and names without a dot. Names besides these are allowed with addresses and names of localhost.
///     allowed_origin: ``*`` or the origin whose pages may write besides the server's own.
///     listens_on: The name or address that the server binds.
///
/// Raises:
///     InvalidInput: If one of the hosts is not a host name.
///
/// >>> Origins("auto", "none", "127.0.0.1").refusal(b"GET", b"example.org", None, None)[0]
/// 'misdirected_request'
#[pyclass(frozen, module = "coregw._core")]
pub struct Origins(origins::Origins);

#[pymethods]
impl Origins {
    #[new]
    fn new(hosts: &str, allowed_origin: &str, listens_on: &str) -> PyResult<Self> {
        let made = origins::Origins::new(hosts, allowed_origin, listens_on);
        made.map(Self).map_err(|origins::BadName(name)| {
            let shown: String = name.chars().take(100).collect();
            let expected = "names such as gateway.example.org, separated by commas, * or auto";
            invalid(InputCode::InvalidRequest, format!("setting hosts has {shown:?}, expected {expected}"))
        })
    }

    /// Return why a request is refused, as a code of errors and a sentence; None if it is not. O(bytes).
    ///
    /// Args:
    ///     method: The method.
    ///     host: The value of Host, or None.
    ///     origin: The value of Origin, or None.
    ///     site: The value of Sec-Fetch-Site, or None.
    #[pyo3(signature = (method, host, origin, site))]
    fn refusal(
        &self,
        method: &[u8],
        host: Option<&[u8]>,
        origin: Option<&[u8]>,
        site: Option<&[u8]>,
    ) -> Option<(&'static str, String)> {
        let refusal = self.0.refusal(&Source { method, host, origin, site })?;
        let code = match refusal {
            Refusal::Host(_) => "misdirected_request",
            Refusal::Page(_) => "forbidden_origin",
        };
        Some((code, refusal.to_string()))
    }
}

/// Whether a name or address to listen on is reachable from this machine only.
///
/// >>> is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
/// (True, True, False)
#[pyfunction]
pub fn is_loopback(host: &str) -> bool {
    origins::is_loopback(host)
}
