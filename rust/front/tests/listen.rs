//! Sockets that listen.
#![cfg(unix)]

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use coregw_front::listen::tcp;

#[test]
fn the_unspecified_address_of_ipv6_takes_connections_of_ipv4() {
    let Ok(listener) = tcp(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)), 5) else { return }; // no IPv6 here
    let port = listener.local_addr().expect("an address").port();
    for address in [SocketAddr::from((Ipv4Addr::LOCALHOST, port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port))] {
        TcpStream::connect(address).expect("a connection");
    }
}
