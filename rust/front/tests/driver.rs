//! Threads for work, without sockets.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use coregw_core::PageCache;
use coregw_front::driver::{Driver, DriverLimits};
use coregw_front::reads::Reads;

/// Work of this weight leaves the thread of its connection, for one of the threads for long work.
const LONG: usize = 16 << 20;

#[tokio::test]
async fn work_whose_client_leaves_keeps_its_thread_until_it_has_ended() {
    let cache = Arc::new(PageCache::new(1 << 20, 10));
    let reads = Reads::new(Arc::clone(&cache), false);
    let patience = Duration::from_secs(30);
    let limits = DriverLimits { node_budget: 1, max_nodes: 1, patience, long_queries: 1, threads: 1 };
    let driver = Arc::new(Driver::new(cache, reads, limits));
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let (end, may_end) = mpsc::channel::<()>();
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = |what: &'static str| {
        let order = Arc::clone(&order);
        move || order.lock().expect("no panic").push(what)
    };

    let (of_first, first_ended) = (Arc::clone(&driver), note("the first ended"));
    let first = tokio::spawn(async move {
        let work = move || {
            let _ = begun.send(());
            let _ = may_end.recv();
            first_ended();
            Ok(())
        };
        of_first.call(LONG, work).await
    });
    has_begun.await.expect("it begins");
    first.abort();
    assert!(first.await.is_err_and(|error| error.is_cancelled()));

    let second_began = note("the second began");
    let second = tokio::spawn(async move {
        let work = move || {
            second_began();
            Ok(())
        };
        driver.call(LONG, work).await
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    std::thread::sleep(Duration::from_millis(20)); // a thread that it should not have would begin by then
    end.send(()).expect("it waits");
    second.await.expect("no panic").expect("a thread");
    assert_eq!(*order.lock().expect("no panic"), ["the first ended", "the second began"]);
}
