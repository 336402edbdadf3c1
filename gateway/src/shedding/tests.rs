//! Simulated upstreams: so many servers, a queue before them, and clients that send without regard to what comes back.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    time::Duration,
};

use limiter_core::Timestamp;
use proptest::{collection::vec, prelude::*};

use super::{
    gate::{End, Gate},
    gradient::{Bounds, Gradient, LogSum, Seen},
};

/// How long a server takes for a request, on average, and how this is spread.
#[derive(Clone, Copy, Debug)]
enum Work {
    Constant(f64),
    Exponential(f64),
    /// One in ten takes twenty times as long.
    Mixed(f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives,
    /// Of a request.
    Ends(Sent),
}

/// When, and through which gate.
type Sent = (u64, usize);

/// An upstream behind gates, in simulated time.
struct Simulation {
    /// Each of a gateway; one of them is asked for each request.
    gates: Vec<Gate>,
    random: fastrand::Rng,
    servers: usize,
    work: Work,
    /// Requests a second.
    load: f64,
    now: u64,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    queue: VecDeque<Sent>,
    serving: usize,
}

/// What came of a stretch of time.
#[derive(Debug, Default)]
struct Report {
    latencies: Vec<u64>,
    shed: u64,
    /// The limit at each arrival.
    limits: Vec<u64>,
}

impl Report {
    fn quantile(&self, of: f64) -> u64 {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        sorted[(sorted.len() as f64 * of) as usize]
    }

    fn mean_limit(&self) -> f64 {
        self.limits.iter().sum::<u64>() as f64 / self.limits.len() as f64
    }

    fn least_limit(&self) -> u64 {
        self.limits.iter().copied().min().unwrap()
    }

    fn shed_share(&self) -> f64 {
        self.shed as f64 / self.limits.len() as f64
    }
}

impl Simulation {
    fn new(bounds: (u64, u64), servers: usize, work: Work, load: f64) -> Self {
        let now = 1_796_040_007_000_000;
        let bounds = Bounds {
            min: bounds.0,
            max: bounds.1,
        };
        Self {
            gates: vec![Gate::new(bounds, Timestamp::from_micros(now))],
            random: fastrand::Rng::with_seed(7),
            servers,
            work,
            load,
            now,
            events: BinaryHeap::from([Reverse((now, Event::Arrives))]),
            queue: VecDeque::new(),
            serving: 0,
        }
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.random.f64()).ln()
    }

    fn work(&mut self) -> u64 {
        let millis = match self.work {
            Work::Constant(mean) => mean,
            Work::Exponential(mean) => self.exponential(mean),
            Work::Mixed(fast) if self.random.u8(..10) == 0 => fast * 20.0,
            Work::Mixed(fast) => fast,
        };
        (millis * 1000.0) as u64
    }

    fn serve(&mut self, sent: Sent) {
        self.serving += 1;
        let ends = self.now + self.work();
        self.events.push(Reverse((ends, Event::Ends(sent))));
    }

    fn run(&mut self, secs: u64) -> Report {
        let mut report = Report::default();
        let end = self.now + secs * 1_000_000;
        while let Some(Reverse((at, event))) = self.events.pop() {
            self.now = at;
            let now = Timestamp::from_micros(at);
            match event {
                Event::Arrives => {
                    let pause = self.exponential(1e6 / self.load) as u64;
                    self.events.push(Reverse((at + pause, Event::Arrives)));
                    let via = self.random.usize(..self.gates.len());
                    let gate = &self.gates[via];
                    report.limits.push(gate.limit());
                    if !gate.has_room(0, now) {
                        report.shed += 1;
                    } else {
                        gate.enter();
                        if self.serving < self.servers {
                            self.serve((at, via));
                        } else {
                            self.queue.push_back((at, via));
                        }
                    }
                }
                Event::Ends((sent, via)) => {
                    self.serving -= 1;
                    report.latencies.push(at - sent);
                    self.gates[via].leave(End::Answered(Duration::from_micros(at - sent)), now);
                    while self.serving < self.servers {
                        let Some(next) = self.queue.pop_front() else { break };
                        self.serve(next);
                    }
                }
            }
            if at >= end {
                break;
            }
        }
        report
    }
}

const WORKS: [Work; 3] = [Work::Constant(10.0), Work::Exponential(10.0), Work::Mixed(10.0 / 2.9)];

/// 50 servers of 10 ms: 5,000 a second, and a knee at 50.
fn fifty(work: Work, load: f64) -> Simulation {
    Simulation::new((10, 1000), 50, work, load)
}

fn per_second(report: &Report, secs: u64) -> f64 {
    report.latencies.len() as f64 / secs as f64
}

#[test]
fn it_finds_the_knee() {
    for work in WORKS {
        // By themselves, without a queue.
        let alone = {
            let mut simulation = fifty(work, 500.0);
            simulation.run(20).quantile(0.99)
        };
        for load in [6_000.0, 12_000.0] {
            let mut simulation = fifty(work, load);
            simulation.run(8);
            let report = simulation.run(15);
            let what = format!("{work:?} at {load}: {}", report.mean_limit());
            assert!(per_second(&report, 15) > 4_750.0, "{what}: {}", per_second(&report, 15));
            assert!((40.0..100.0).contains(&report.mean_limit()), "{what}");
            let p99 = report.quantile(0.99);
            assert!(p99 < alone * 5 / 4 + 12_000, "{what}: {p99} µs, alone {alone}");
        }
    }
}

#[test]
fn below_the_knee_nobody_is_shed_however_uneven_the_work() {
    for work in WORKS {
        let mut simulation = fifty(work, 2_500.0);
        let start = simulation.run(5);
        assert!(start.shed_share() < 0.1, "{work:?}: {}", start.shed_share());
        let report = simulation.run(100);
        assert!(report.shed_share() < 0.0005, "{work:?}: {}", report.shed_share());
        assert!(report.least_limit() >= 40, "{work:?}: {}", report.least_limit());
    }
}

#[test]
fn it_follows_an_upstream_that_becomes_slower_or_faster() {
    for (before, slow, fast) in [
        (Work::Constant(10.0), Work::Constant(30.0), Work::Constant(5.0)),
        (Work::Exponential(10.0), Work::Exponential(30.0), Work::Exponential(5.0)),
    ] {
        let mut simulation = Simulation::new((5, 1000), 20, before, 5_000.0);
        simulation.run(20);
        // (servers, work, what it can do)
        for (servers, work, able) in [
            (20, slow, 667.0),
            (20, fast, 4_000.0),
            (6, before, 600.0),
            (40, before, 4_000.0),
        ] {
            (simulation.servers, simulation.work) = (servers, work);
            simulation.run(5);
            let report = simulation.run(10);
            let found = per_second(&report, 10);
            assert!(found > able * 0.9, "{servers} × {work:?}: {found} of {able} a second");
            // Later also what it is at ease is known, and with it how long is too long.
            simulation.run(35);
            let report = simulation.run(10);
            let (found, mean) = (per_second(&report, 10), report.mean_limit());
            assert!(found > able * 0.9, "{servers} × {work:?}: {found} of {able} a second");
            assert!(mean < servers as f64 * 3.0, "{servers} × {work:?}: {mean}");
        }
    }
}

#[test]
fn measuring_at_ease_starves_nobody() {
    for work in WORKS {
        let mut simulation = fifty(work, 7_000.0);
        simulation.run(10);
        for second in 0..65 {
            let report = simulation.run(1);
            let served = per_second(&report, 1);
            assert!(served > 3_000.0, "{work:?}, second {second}: {served}");
        }
    }
}

#[test]
fn gateways_that_share_an_upstream_measure_it_together() {
    let mut simulation = fifty(Work::Constant(10.0), 9_000.0);
    let now = Timestamp::from_micros(simulation.now);
    let more = (0..3).map(|_| Gate::new(Bounds { min: 3, max: 1000 }, now));
    simulation.gates = more.collect();
    simulation.run(65);
    let report = simulation.run(30);
    assert!(per_second(&report, 30) > 4_750.0, "{}", per_second(&report, 30));
    let median = report.quantile(0.5);
    assert!(median < 30_000, "{median} µs");
}

#[test]
fn the_bounds_hold() {
    let mut low = Simulation::new((5, 20), 50, Work::Constant(10.0), 20_000.0);
    low.run(5);
    assert_eq!(low.run(5).mean_limit(), 20.0);
    let mut high = Simulation::new((200, 1000), 50, Work::Constant(10.0), 20_000.0);
    high.run(5);
    assert_eq!(high.run(20).least_limit(), 200);
    high.gates[0].set_bounds(Bounds { min: 1, max: 60 });
    assert_eq!(high.gates[0].limit(), 60);
}

#[test]
fn some_leave_a_part_of_the_limit_to_others() {
    let now = Timestamp::from_micros(1_796_040_007_000_000);
    let gate = Gate::new(Bounds { min: 10, max: 10 }, now);
    let room = || [0, 1, 100, 200, 1000].map(|spared| gate.has_room(spared, now));
    (0..8).for_each(|_| gate.enter());
    assert_eq!(room(), [true, true, true, false, false]);
    gate.enter();
    assert_eq!(room(), [true, false, false, false, false]);
    gate.enter();
    assert_eq!(room(), [false; 5]);
    gate.leave(End::Untold, now);
    assert_eq!(room(), [true, false, false, false, false]);
    let one = Gate::new(Bounds { min: 1, max: 1 }, now);
    assert!(one.has_room(1000, now), "somebody has to pass");
}

/// What the limit is once so many of 20 requests of 10 ms each have ended in this way.
fn after(end: End) -> u64 {
    let mut now = Timestamp::from_micros(1_796_040_007_000_000);
    let gate = Gate::new(Bounds { min: 10, max: 100 }, now);
    for ends in [[End::Answered(Duration::from_millis(10)); 20], [end; 20]] {
        for _ in 0..4 {
            ends.iter().for_each(|_| gate.enter());
            now = now.plus(Duration::from_millis(300));
            ends.iter().for_each(|end| gate.leave(*end, now));
        }
    }
    gate.limit()
}

#[test]
fn who_loses_patience_tells_of_a_slow_upstream_and_who_leaves_early_of_nothing() {
    let fine = after(End::Untold);
    assert_eq!(fine, after(End::Left(Duration::from_millis(1))));
    let slow = after(End::Left(Duration::from_secs(5)));
    assert!(slow < fine, "{slow} of {fine}");
    assert_eq!(slow, after(End::Answered(Duration::from_secs(5))));
}

#[test]
fn logarithms_are_close_enough_and_rise() {
    let mut before = 0;
    for micros in (1_u64..100_000).chain([1 << 39, 1 << 40, u64::MAX]) {
        let log = LogSum::of(Duration::from_micros(micros)).0;
        let exact = (micros.min(1 << 40) as f64).log2();
        let off = exact - log as f64 / f64::from(1 << 20);
        assert!((-1e-5..0.09).contains(&off), "{micros}: {off}");
        assert!(log >= before, "{micros}");
        before = log;
    }
    assert_eq!(LogSum::of(Duration::ZERO), LogSum::default());
}

proptest! {
    #[test]
    fn whatever_is_seen_the_limit_is_within_its_bounds(
        min in 1_u64..50,
        more in 0_u64..2_000,
        steps in vec((0_u64..40_000_000, 0_u64..100, 0_u64..3_000, 0_u64..20_000_000), 1..200),
    ) {
        let mut now = Timestamp::from_micros(1_796_040_007_000_000);
        let bounds = Bounds { min, max: min + more };
        let mut gradient = Gradient::new(bounds, now);
        for (pause, requests, in_flight, latency) in steps {
            now = now.plus(Duration::from_micros(pause));
            let sum = LogSum(requests * LogSum::of(Duration::from_micros(latency)).0);
            let seen = Seen { requests, sum, peak: in_flight };
            gradient.step(now, in_flight, &seen);
            prop_assert!((min..=min + more).contains(&gradient.limit()), "{gradient:?}");
            prop_assert!(gradient.due() <= now.plus(Duration::from_secs(60)), "{gradient:?}");
        }
    }
}
