//! Timing, and the output of figures as table rows or as JSON lines.

use std::hint::black_box;
use std::time::{Duration, Instant};

pub fn time<T>(work: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    black_box(work());
    start.elapsed()
}

/// The best time of each piece of work, since any disturbance only makes it slower. Rounds of all of them alternate,
/// with `repeats` runs of each per round.
pub fn best<const N: usize>(
    rounds: usize,
    repeats: usize,
    mut works: [&mut dyn FnMut() -> Duration; N],
) -> [Duration; N] {
    let mut best = [Duration::MAX; N];
    for _ in 0..rounds {
        for (work, best) in works.iter_mut().zip(&mut best) {
            (0..repeats).for_each(|_| *best = work().min(*best));
        }
    }
    best
}

pub fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64()
}

/// Microseconds per item of `n`.
pub fn each(time: Duration, n: usize) -> f64 {
    time.as_secs_f64() * 1e6 / n as f64
}

/// The tree that figures describe.
#[derive(Clone, Copy)]
pub struct Place {
    /// Its kind of keys.
    pub keys: &'static str,
    pub arcs: usize,
    pub json: bool,
}

impl Place {
    /// Prints a figure. Bars apply to trees of at least 100,000 arcs.
    pub fn line(&self, what: &str, value: f64, unit: &str, bar: Option<f64>, note: &str) {
        let bar = bar.filter(|_| self.arcs >= 100_000);
        let Self { keys, arcs, json } = self;
        if *json {
            let figure = serde_json::json!({
                "keys": keys, "arcs": arcs, "what": what, "value": value, "unit": unit, "bar": bar, "note": note,
            });
            println!("{figure}");
            return;
        }
        let verdict = match bar {
            Some(bar) if value <= bar => format!("<= {bar}  ok"),
            Some(bar) => format!("<= {bar}  MISSED"),
            None => String::new(),
        };
        println!("{keys:<16}{arcs:>9}  {what:<52}{value:>9.2} {unit:<6}{verdict:<18}{note}");
    }
}
