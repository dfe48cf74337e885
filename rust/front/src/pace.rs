//! The pace at which a client has to send a body, or read what is written to it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// What is demanded of a client.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// The least that has to move, in bytes a second, after the grace period; 0 if any progress counts.
    pub bytes_per_second: u32,
    /// Time before the rate applies.
    pub grace: Duration,
    /// The longest pause, however much has moved before.
    pub pause: Duration,
}

/// A timer that is mostly set to later before it rings: it is registered again when it has rung too early.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    is_armed: bool,
}

impl Timer {
    /// Ready from `deadline` on.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if !std::mem::replace(&mut self.is_armed, true) || sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if Instant::now() >= deadline {
                self.is_armed = false;
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
    }
}

/// How long a transfer may still wait for its client.
///
/// Only time in which the gateway waits counts. Bytes that move extend it by what they may take at the least rate, but
/// not beyond the longest pause. So a client that was fast may pause, and one that trickles is overdue soon after the
/// grace period, however long the transfer is.
#[derive(Debug)]
pub(crate) struct Pace {
    rate: Rate,
    timer: Timer,
    /// Since when the client is awaited, if it is.
    since: Option<Instant>,
    /// How long it may be awaited, from `since` on.
    left: Duration,
    /// How long it was awaited in all, before `since`.
    waited: Duration,
    /// How long it was awaited since it was last fast enough, before `since`, and what has moved meanwhile.
    behind: Duration,
    moved: u64,
}

impl Pace {
    pub(crate) fn new(rate: Rate) -> Self {
        let left = rate.grace.min(rate.pause);
        let (waited, behind) = (Duration::ZERO, Duration::ZERO);
        Pace { rate, timer: Timer::default(), since: None, left, waited, behind, moved: 0 }
    }

    /// Notes that the client has moved bytes, or is not awaited any more.
    pub(crate) fn move_on(&mut self, bytes: usize) {
        if let Some(since) = self.since.take() {
            let waited = since.elapsed();
            self.left = self.left.saturating_sub(waited);
            self.waited += waited;
            self.behind += waited;
        }
        if bytes == 0 {
            return;
        }
        let rate = f64::from(self.rate.bytes_per_second);
        let earned = if rate > 0.0 { Duration::from_secs_f64(bytes as f64 / rate) } else { self.rate.pause };
        self.left = self.left.saturating_add(earned).min(self.rate.pause);
        self.moved += bytes as u64;
        if self.moved as f64 >= rate * self.behind.as_secs_f64() {
            (self.behind, self.moved) = (Duration::ZERO, 0);
        }
    }

    /// Begins again, with a grace period.
    pub(crate) fn restart(&mut self) {
        let timer = std::mem::take(&mut self.timer);
        *self = Pace { timer, ..Pace::new(self.rate) };
    }

    /// Waits for the client. Ready when it is overdue, or was awaited for `whole` in all.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, whole: Duration) -> Poll<()> {
        let since = *self.since.get_or_insert_with(Instant::now);
        self.timer.poll(cx, since + self.left.min(whole.saturating_sub(self.waited)))
    }

    /// Since when the client is slower than the rate; None if it is not awaited.
    pub(crate) fn behind_since(&self) -> Option<Instant> {
        self.since.map(|since| since.checked_sub(self.behind).unwrap_or(since))
    }
}
