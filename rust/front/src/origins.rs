//! Checks of Host and Origin: protection against DNS rebinding, and against writes of other origins' web pages.
//!
//! A page can make its visitor's browser send requests to any address, also to loopback. If its name then resolves to
//! that address, the browser takes the gateway for the page's own origin, and lets it read (DNS rebinding); but the Host
//! that it sends is the page's name. Without that, a page cannot read, but may still write; then the browser names its
//! Origin, or the site where the request began (`Sec-Fetch-Site`).

use std::collections::HashSet;
use std::fmt::{self, Write};
use std::net::IpAddr;

/// Allows every host, or every origin.
pub const ANY: &str = "*";
/// Of `hosts`: on loopback, the names that only this machine and its network have; elsewhere all.
pub const AUTOMATIC: &str = "auto";

const LOCAL: &str = "localhost";
const MAX_SHOWN: usize = 200;

/// Which hosts the requests to one server may name, and which web pages may write.
#[derive(Debug)]
pub struct Origins {
    allowed_origin: Vec<u8>,
    names: HashSet<String>,
    accepts_undotted: bool,
    checks_hosts: bool,
}

/// What a request says of the page that sent it. Only browsers send the last two.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The method.
    pub method: &'a [u8],
    /// The value of Host, without the checks of its syntax; no browser leaves it out.
    pub host: Option<&'a [u8]>,
    /// The value of Origin.
    pub origin: Option<&'a [u8]>,
    /// The value of Sec-Fetch-Site.
    pub site: Option<&'a [u8]>,
}

/// Why a request is refused. It is displayed as a sentence for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The gateway does not have this host: 421.
    Host(Vec<u8>),
    /// Pages of this origin may not write: 403. None if the browser names none.
    Page(Option<Vec<u8>>),
}

/// The name in the list of hosts that is not one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadName(pub String);

impl Origins {
    /// The policy of a server.
    ///
    /// `hosts` is [`ANY`], [`AUTOMATIC`], or host names separated by commas; `allowed_origin` is [`ANY`] or the origin
    /// whose pages may write besides the server's own; `listens_on` is the name or address that the server binds.
    ///
    /// # Errors
    ///
    /// If one of the hosts is not a host name.
    pub fn new(hosts: &str, allowed_origin: &str, listens_on: &str) -> Result<Self, BadName> {
        Ok(Origins {
            allowed_origin: allowed_origin.as_bytes().to_vec(),
            names: parse_hosts(hosts)?,
            accepts_undotted: hosts == AUTOMATIC,
            checks_hosts: hosts != ANY && (hosts != AUTOMATIC || is_loopback(listens_on)),
        })
    }

    /// Returns why a request is refused. O(length of the values).
    pub fn refusal(&self, request: &Source) -> Option<Refusal> {
        if let Some(host) = request.host.filter(|host| self.checks_hosts && !self.is_allowed(host)) {
            return Some(Refusal::Host(host.to_vec()));
        }
        let is_safe = matches!(request.method, b"GET" | b"HEAD" | b"OPTIONS");
        let may = is_safe || self.may_write(request);
        (!may).then(|| Refusal::Page(request.origin.map(<[u8]>::to_vec)))
    }

    /// Whether no page of a stranger can have this host: an address, a name of this machine, or a configured one. An
    /// address with a zone is none of them: zones have a meaning on the client's machine only, and clients leave them out
    /// of what they send (RFC 6874 section 4).
    fn is_allowed(&self, host: &[u8]) -> bool {
        let Ok(host) = std::str::from_utf8(host) else { return false };
        let name = without_port(host).to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        let is_local = name.strip_suffix(LOCAL).is_some_and(|above| above.is_empty() || above.ends_with('.'));
        if is_local || self.names.contains(name) || (self.accepts_undotted && is_label(name)) {
            return true;
        }
        let address = name.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(name);
        address.parse::<IpAddr>().is_ok()
    }

    /// Whether the page that sent a request, if one did, is of the allowed origin or of the gateway's own.
    fn may_write(&self, request: &Source) -> bool {
        let is_allowed = |origin: &[u8]| self.allowed_origin == ANY.as_bytes() || self.allowed_origin == origin;
        match (request.origin, request.site) {
            (Some(origin), _) if is_allowed(origin) => true,
            (_, Some(site)) => matches!(site, b"same-origin" | b"none"),
            (None, None) => true,
            (Some(origin), None) => request.host.is_some_and(|host| authority(origin).eq_ignore_ascii_case(host)),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Host(host) => {
                write_quoted(f, host)?;
                f.write_str(" is not a host of this gateway; if it should be, add it to COREGW_HOSTS")
            }
            Refusal::Page(origin) => {
                f.write_str("web pages of ")?;
                write_quoted(f, origin.as_deref().unwrap_or(b"another origin"))?;
                f.write_str(" may not write here; see COREGW_ALLOW_ORIGIN")
            }
        }
    }
}

/// The names in a list of hosts, in lower case; none for [`ANY`] and [`AUTOMATIC`].
fn parse_hosts(text: &str) -> Result<HashSet<String>, BadName> {
    if text == ANY || text == AUTOMATIC {
        return Ok(HashSet::new());
    }
    let names = text.split(',').map(|name| {
        let name = name.trim().to_lowercase();
        if name.split('.').all(is_label) { Ok(name) } else { Err(BadName(name)) }
    });
    names.collect()
}

/// Whether this is a host name without a dot, in lower case.
fn is_label(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

/// Whether a name or address to listen on is reachable from this machine only.
pub fn is_loopback(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host.eq_ignore_ascii_case(LOCAL),
    }
}

/// A host without the colon and digits at its end.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// What stands after `://` in an origin.
fn authority(origin: &[u8]) -> &[u8] {
    let separator = b"://";
    let found = origin.windows(separator.len()).position(|window| window == separator);
    found.map_or(&[], |at| &origin[at + separator.len()..])
}

/// Writes the start of a header's value in quotes, with escapes for all but visible ASCII.
fn write_quoted(f: &mut fmt::Formatter<'_>, value: &[u8]) -> fmt::Result {
    f.write_char('\'')?;
    for &byte in &value[..value.len().min(MAX_SHOWN)] {
        match byte {
            b'\'' | b'\\' => write!(f, "\\{}", byte as char)?,
            b' '..=b'~' => f.write_char(byte as char)?,
            _ => write!(f, "\\x{byte:02x}")?,
        }
    }
    f.write_char('\'')
}
