//! The open connections, without any, by a clock that the tests move.
#![cfg(unix)]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use coregw_front::crowd::{Crowd, Figures, Place};
use coregw_front::peers::{Proxies, Shares};
use tokio::time::advance;

const ONE: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
const OTHER: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)));
const SECOND: Duration = Duration::from_secs(1);

fn crowd(connections: usize, per_address: usize, unsent: usize) -> Arc<Crowd> {
    Crowd::new(Shares { connections, per_address, unsent }, Arc::new(Proxies::default()))
}

fn enter(crowd: &Arc<Crowd>, client: Option<IpAddr>) -> Place {
    crowd.enter(client).expect("a place")
}

#[tokio::test(start_paused = true)]
async fn the_longest_idle_connection_makes_room_and_one_that_works_never_does() {
    let crowd = crowd(3, 3, 1000);
    let mut places = Vec::new();
    for client in [ONE, OTHER, ONE] {
        places.push(enter(&crowd, client));
        advance(SECOND).await;
    }
    let busy = places[0].member().begin();
    let fourth = enter(&crowd, ONE);
    let ended: Vec<bool> = places.iter().map(|place| place.member().is_ended()).collect();
    assert_eq!(ended, [false, true, false], "the first is at work");
    drop(busy); // it has just been answered: now the third has been idle for longest
    advance(SECOND).await;
    drop(enter(&crowd, OTHER));
    assert!(places[2].member().is_ended() && !places[0].member().is_ended() && !fourth.member().is_ended());
    let _fifth = enter(&crowd, OTHER);
    let _work: Vec<_> = [&places[0], &fourth, &_fifth].map(|place| place.member().begin()).into();
    assert!(crowd.enter(ONE).is_none());
    let figures = crowd.figures();
    assert_eq!((figures.connections, figures.requests, figures.no_room), (3, 3, 3));
    drop((places, fourth, _fifth));
    assert_eq!(crowd.figures(), Figures { no_room: 3, ..Figures::default() });
}

#[tokio::test(start_paused = true)]
async fn a_stream_beside_another_has_the_place_of_a_connection() {
    let crowd = crowd(5, 4, 1000);
    let (own, idle) = (enter(&crowd, ONE), enter(&crowd, OTHER));
    let first = own.member().begin_stream();
    let second = own.member().begin_stream();
    let third = own.member().begin_stream();
    assert!(first.is_some() && second.is_some() && third.is_some());
    let last = enter(&crowd, ONE); // five places are taken, and four of them by one address
    assert!(own.member().begin_stream().is_none(), "its address has its share");
    assert!(last.member().begin_stream().is_some(), "the first stream has the place of its connection");
    advance(SECOND).await;
    let _of_idle = idle.member().begin_stream();
    let work = (own.member().begin(), last.member().begin());
    assert!(idle.member().begin_stream().is_none(), "no other connection is idle");
    drop(work);
    advance(SECOND).await;
    assert!(idle.member().begin_stream().is_some());
    let ended: Vec<bool> = [&own, &idle, &last].map(|place| place.member().is_ended()).into();
    assert_eq!(ended, [true, false, false], "one with as many places as it has streams made room");
    drop((second, third));
    let others: Vec<_> = (0..2).map(|_| enter(&crowd, None)).collect();
    assert!(others.iter().all(|place| !place.member().is_ended()) && !last.member().is_ended());
    assert!(own.member().begin_stream().is_none(), "it has ended");
}

#[tokio::test(start_paused = true)]
async fn one_address_has_a_share() {
    let crowd = crowd(10, 2, 1000);
    let others: Vec<_> = (0..4).map(|_| enter(&crowd, None)).collect();
    let first = enter(&crowd, ONE);
    advance(SECOND).await;
    let second = enter(&crowd, ONE);
    let third = enter(&crowd, ONE);
    assert!(first.member().is_ended() && !second.member().is_ended());
    let _work = (second.member().begin(), third.member().begin());
    assert!(crowd.enter(ONE).is_none());
    assert!(others.iter().all(|place| !place.member().is_ended()) && crowd.enter(OTHER).is_some());
}

#[tokio::test(start_paused = true)]
async fn who_reads_nothing_for_longest_goes_when_much_is_unread() {
    let crowd = crowd(10, 10, 1500);
    let places: Vec<_> = (0..4).map(|_| enter(&crowd, ONE)).collect();
    let mut held = Vec::new();
    for place in &places[..3] {
        held.push(place.member().hold(300));
        advance(SECOND).await;
    }
    held.push(places[3].member().hold(300)); // 1200, and two thirds are 1000
    let ended: Vec<bool> = places.iter().map(|place| place.member().is_ended()).collect();
    assert_eq!(ended, [true, false, false, false]);
    assert_eq!(crowd.figures().unsent_bytes, 900);
    drop(held.drain(..1)); // what was written off is not counted again
    assert_eq!(crowd.figures().unsent_bytes, 900);
    // Who has had no time is left until more than the limit is unread, and then the newest is.
    let more = places[3].member().hold(3000);
    let ended: Vec<bool> = places.iter().map(|place| place.member().is_ended()).collect();
    assert_eq!(ended, [true, true, true, false]);
    drop((held, more));
    let figures = crowd.figures();
    assert_eq!((figures.unsent_bytes, figures.unread_responses), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn an_address_of_which_much_is_unread_makes_room_before_others() {
    let crowd = Crowd::new(Shares { connections: 10, per_address: 5, unsent: 1500 }, Arc::new(Proxies::default()));
    let places: Vec<_> = [OTHER, ONE, ONE, OTHER].into_iter().map(|client| enter(&crowd, client)).collect();
    let mut held = Vec::new();
    for (place, size) in places.iter().zip([300, 450, 350, 100]) {
        held.push(place.member().hold(size));
        advance(SECOND).await;
    }
    let ended: Vec<bool> = places.iter().map(|place| place.member().is_ended()).collect();
    assert_eq!(ended, [false, true, false, false], "the other has its share, though it has read nothing for longer");
    held.push(places[3].member().hold(500)); // 1250, of which the other now has more than its share
    let ended: Vec<bool> = places.iter().map(|place| place.member().is_ended()).collect();
    assert_eq!(ended, [true, true, false, false]);
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_one_request_after_the_other_goes() {
    let crowd = crowd(10, 10, 1000);
    let place = enter(&crowd, ONE);
    for _ in 0..1000 {
        drop(place.member().begin());
        let mut open = place.member().begin();
        open.answer();
    }
    assert!(!place.member().is_ended(), "every other one was answered");
    (0..300).for_each(|_| drop(place.member().begin()));
    assert!(place.member().is_ended());
    assert_eq!(crowd.figures().floods, 1);
}
