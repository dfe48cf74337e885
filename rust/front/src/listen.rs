//! Sockets that connections arrive on.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// A socket that listens on an address. The unspecified address of IPv6 is every address, of IPv4 as well.
///
/// So many connections as `backlog` says may wait to be accepted.
///
/// # Errors
///
/// The system's: the address is in use, does not exist, or may not be used.
pub fn tcp(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if let SocketAddr::V6(v6) = address {
        // Whether it takes connections of IPv4 by default depends on the system's settings.
        socket.set_only_v6(!v6.ip().is_unspecified())?;
    }
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
