//! One request over all its layers: all are charged, or none.

use smallvec::SmallVec;

use crate::{
    algorithm::{Algorithm, Counter},
    clock::Timestamp,
    decision::{Decision, Reading, Readings, Verdict, Wait},
    policy::Role,
    receipt::Receipt,
    turn::Turn,
};

/// One layer of a request: how it counts, what its word counts for, and what the request costs there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer<'a> {
    pub(crate) algorithm: &'a Algorithm,
    pub(crate) role: Role,
    pub(crate) cost: u64,
    /// Whether what it is charged may be settled afterwards.
    pub(crate) gives_back: bool,
}

impl Layer<'_> {
    /// The cost, or more than is ever free where it is above the limit: of a bucket that requests wait for, more may be
    /// free than its burst.
    pub(crate) fn demand(&self) -> u64 {
        if self.cost > self.algorithm.limit() {
            u64::MAX
        } else {
            self.cost
        }
    }
}

/// Decides one request over counters that were loaded for `now`, one a layer, in the same order. A candidate follows
/// the layer that it may replace.
///
/// If every enforced layer has room, all are charged; else none is, and the first without room is named, with the
/// longest wait of all enforced ones that have none. Layers of other roles are charged as [`Role`] says. A cost of 0
/// always has room, takes nothing and waits for nothing. The request's turn is that of the enforced layer with the
/// longest queue.
pub(crate) fn decide(layers: &[Layer<'_>], counters: &mut [Counter], now: Timestamp) -> Decision {
    let mut rooms = SmallVec::<[Room; 8]>::new();
    for (layer, counter) in layers.iter().zip(&*counters) {
        let (demand, free) = (layer.demand(), layer.algorithm.free(counter));
        rooms.push(Room { demand, free });
    }
    let refusals = Refusals::of(layers.iter().zip(&rooms).map(|(layer, room)| (layer.role, room.fits())));
    let mut wait = Wait::For(std::time::Duration::ZERO);
    let (mut turn, mut receipt) = (None, None);
    let mut readings = Readings::new();
    if layers.len() > readings.inline_size() {
        readings = Vec::with_capacity(layers.len()).into();
    }
    for (at, ((layer, room), counter)) in layers.iter().zip(&rooms).zip(counters).enumerate() {
        let taken = refusals.charge(at, layer.role, room.demand, room.free);
        if taken > 0 {
            layer.algorithm.save(counter, taken, now);
            if layer.gives_back {
                Receipt::add(&mut receipt, at, taken, now);
            }
            if layer.role.is_enforced()
                && refusals.first.is_none()
                && let Some(own) = layer.algorithm.turn(counter, taken)
            {
                if layer.gives_back {
                    Turn::wait(&mut turn, own.0);
                } else {
                    Turn::add(&mut turn, at, taken, own);
                }
            }
        }
        let reading = read(layer, counter, room.fits(), taken, now);
        if layer.role.is_enforced() && !reading.fits {
            wait = wait.max(reading.wait);
        }
        readings.push(reading);
    }
    let verdict = match refusals.first {
        None => Verdict::Allowed,
        Some(by) => Verdict::Denied { by, wait },
    };
    Decision {
        verdict,
        readings,
        turn,
        receipt,
        held: None,
    }
}

/// What a request wants of a layer, and what that has.
#[derive(Clone, Copy)]
struct Room {
    demand: u64,
    free: u64,
}

impl Room {
    fn fits(self) -> bool {
        self.demand <= self.free
    }
}

/// Which enforced layers have no room.
pub(crate) struct Refusals {
    pub(crate) first: Option<usize>,
    /// Whether there is another.
    more: bool,
}

impl Refusals {
    /// From the role of each layer, and whether it has room.
    pub(crate) fn of(layers: impl Iterator<Item = (Role, bool)>) -> Self {
        let mut lacking = (layers.enumerate())
            .filter(|(_, (role, fits))| role.is_enforced() && !fits)
            .map(|(at, _)| at);
        Self {
            first: lacking.next(),
            more: lacking.next().is_some(),
        }
    }

    /// Units that the layer at `at` is charged for a request that costs it `cost`, where `free` are free.
    pub(crate) fn charge(&self, at: usize, role: Role, cost: u64, free: u64) -> u64 {
        let Some(first) = self.first else {
            // All enforced layers have room.
            return if cost <= free { cost } else { 0 };
        };
        match role {
            Role::Enforced | Role::Shadow => 0,
            // It was asked, as all before it were. It is never charged more than there is: who is refused would have to
            // wait for ever.
            Role::ChargedAlways if at <= first => cost.min(free),
            // Only the layer whose place it may take refuses.
            Role::Candidate if !self.more && first + 1 == at && cost <= free => cost,
            Role::ChargedAlways | Role::Candidate => 0,
        }
    }
}

fn read(layer: &Layer<'_>, counter: &Counter, fits: bool, taken: u64, now: Timestamp) -> Reading {
    let (remaining, until_more) = layer.algorithm.left(counter, now);
    let wait = match fits {
        false => layer.algorithm.wait(counter, layer.cost, now),
        true => until_more,
    };
    Reading {
        fits,
        remaining,
        taken,
        wait,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithm::{Align, FixedWindow};

    const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);

    /// Windows of these limits and seconds, asked for these costs, one request after the other.
    fn windows<const N: usize>(limits: [(u64, u64); N], requests: &[[u64; N]]) -> Vec<Decision> {
        let algorithms: Vec<Algorithm> = (limits.iter())
            .map(|(limit, secs)| {
                FixedWindow::new(*limit, Duration::from_secs(*secs), Align::FirstRequest)
                    .unwrap()
                    .into()
            })
            .collect();
        let mut counters: Vec<Counter> = algorithms.iter().map(|algorithm| algorithm.load(None, NOW)).collect();
        let mut decide_one = |costs: &[u64; N]| {
            let layers: Vec<Layer<'_>> = algorithms
                .iter()
                .zip(costs)
                .map(|(algorithm, &cost)| Layer {
                    algorithm,
                    role: Role::Enforced,
                    cost,
                    gives_back: false,
                })
                .collect();
            decide(&layers, &mut counters, NOW)
        };
        requests.iter().map(&mut decide_one).collect()
    }

    fn secs(secs: u64) -> Wait {
        Wait::For(Duration::from_secs(secs))
    }

    fn denied(by: usize, wait: Wait) -> Verdict {
        Verdict::Denied { by, wait }
    }

    #[test]
    fn a_refusal_charges_no_layer() {
        let decisions = windows([(5, 9), (1, 9)], &[[1, 1], [1, 1], [1, 0]]);
        assert_eq!(decisions[0].verdict, Verdict::Allowed);
        assert_eq!(decisions[1].verdict, denied(1, secs(9)));
        assert_eq!(decisions[2].verdict, Verdict::Allowed);
        let remaining: Vec<u64> = decisions
            .iter()
            .map(|decision| decision.readings[0].remaining)
            .collect();
        assert_eq!(remaining, [4, 4, 3]);
    }

    #[test]
    fn the_first_is_named_with_the_longest_wait() {
        let decisions = windows([(9, 1), (1, 10), (1, 60), (1, 30)], &[[1; 4], [1; 4]]);
        assert_eq!(decisions[1].verdict, denied(1, secs(60)));
        let fits: Vec<bool> = decisions[1].readings.iter().map(|reading| reading.fits).collect();
        assert_eq!(fits, [true, false, false, false]);
    }

    #[test]
    fn never_is_the_longest_wait() {
        let decisions = windows([(1, 10), (5, 60)], &[[1, 1], [1, 6]]);
        assert_eq!(decisions[1].verdict, denied(0, Wait::Never));
    }

    #[test]
    fn a_cost_of_nothing_passes_an_empty_counter_and_takes_nothing() {
        let decisions = windows([(2, 10)], &[[2], [0], [1]]);
        assert_eq!(decisions[1].verdict, Verdict::Allowed);
        assert_eq!(decisions[2].verdict, denied(0, secs(10)));
    }

    #[test]
    fn a_reading_says_when_more_is_free() {
        let decisions = windows([(2, 10)], &[[0], [1], [2]]);
        let readings: Vec<Reading> = decisions.iter().map(|decision| decision.readings[0]).collect();
        let reading = |fits, remaining, taken, wait| Reading {
            fits,
            remaining,
            taken,
            wait,
        };
        assert_eq!(readings[0], reading(true, 2, 0, secs(0)), "full: nothing to wait for");
        assert_eq!(readings[1], reading(true, 1, 1, secs(10)));
        assert_eq!(readings[2], reading(false, 1, 0, secs(10)));
    }

    /// Units that windows of these roles and free units are charged for a request of these costs.
    fn charged<const N: usize>(layers: [(Role, u64); N], costs: [u64; N]) -> (Verdict, Vec<u64>) {
        let algorithms = layers.map(|(_, limit)| {
            let second = Duration::from_secs(1);
            Algorithm::from(FixedWindow::new(limit, second, Align::FirstRequest).unwrap())
        });
        let mut counters = algorithms.each_ref().map(|algorithm| algorithm.load(None, NOW));
        let roles = layers.iter().map(|(role, _)| *role);
        let layers: Vec<Layer<'_>> = (algorithms.iter().zip(roles).zip(costs))
            .map(|((algorithm, role), cost)| Layer {
                algorithm,
                role,
                cost,
                gives_back: false,
            })
            .collect();
        let decision = decide(&layers, &mut counters, NOW);
        let taken = decision.readings.iter().map(|reading| reading.taken).collect();
        (decision.verdict, taken)
    }

    #[test]
    fn a_shadow_refuses_nothing_and_is_charged_where_it_has_room() {
        use Role::{Enforced, Shadow};
        let layers = [(Enforced, 5), (Shadow, 2)];
        assert_eq!(charged(layers, [1, 1]), (Verdict::Allowed, vec![1, 1]));
        assert_eq!(charged(layers, [3, 3]), (Verdict::Allowed, vec![3, 0]));
        assert_eq!(charged(layers, [6, 1]).1, [0, 0]);
    }

    #[test]
    fn one_that_is_always_charged_is_so_where_it_was_asked() {
        use Role::{ChargedAlways, Enforced};
        let layers = [(ChargedAlways, 5), (Enforced, 2), (ChargedAlways, 5)];
        assert_eq!(charged(layers, [3, 3, 3]), (denied(1, Wait::Never), vec![3, 0, 0]));
        assert_eq!(charged(layers, [7, 1, 1]).1, [5, 0, 0], "never more than there is");
        assert_eq!(charged(layers, [1, 1, 1]), (Verdict::Allowed, vec![1, 1, 1]));
    }

    #[test]
    fn a_candidate_is_charged_as_if_it_stood_in_place_of_its_layer() {
        use Role::{Candidate, Enforced};
        let layers = [(Enforced, 2), (Candidate, 5), (Enforced, 4)];
        assert_eq!(charged(layers, [1, 1, 1]), (Verdict::Allowed, vec![1, 1, 1]));
        assert_eq!(
            charged(layers, [3, 3, 3]),
            (denied(0, Wait::Never), vec![0, 3, 0]),
            "only its layer refuses"
        );
        assert_eq!(charged(layers, [3, 3, 9]).1, [0, 0, 0], "another refuses too");
        assert_eq!(charged(layers, [1, 1, 9]).1, [0, 0, 0]);
        let narrow = [(Enforced, 5), (Candidate, 2)];
        assert_eq!(charged(narrow, [3, 3]), (Verdict::Allowed, vec![3, 0]));
    }

    #[test]
    fn without_layers_everything_passes() {
        assert_eq!(windows([], &[[]])[0].verdict, Verdict::Allowed);
    }
}
