//! Sockets that listen.
#![cfg(unix)]

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use coregw_front::listen::tcp;

#[test]
fn the_unspecified_address_of_ipv6_takes_connections_of_ipv4() {
    let Ok(listener) = tcp(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)), 5, false) else { return }; // no IPv6 here
    let port = listener.local_addr().expect("an address").port();
    for address in [SocketAddr::from((Ipv4Addr::LOCALHOST, port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port))] {
        TcpStream::connect(address).expect("a connection");
    }
}

#[test]
fn a_port_is_shared_by_those_that_agree() {
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let first = tcp(local(0), 5, true).expect("a port");
    let port = first.local_addr().expect("an address").port();
    tcp(local(port), 5, true).expect("the same port");
    assert_eq!(tcp(local(port), 5, false).expect_err("it is in use").kind(), ErrorKind::AddrInUse);
}
