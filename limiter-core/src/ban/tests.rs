//! The tables, without a store: what is told, what is kept, and what is forgotten.

use super::*;
use crate::test_util::ManualClock;

const START: Timestamp = Timestamp::from_micros(1_796_040_000_000_000);

/// Keys that the table of a layer holds at most.
const TABLE_MAX: usize = 16 * shard::KEYS_MAX;

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

fn rule(after: u64, ladder: &[u64]) -> Arc<BanRule> {
    let ladder: Vec<_> = ladder.iter().map(|time| seconds(*time)).collect();
    Arc::new(BanRule::new(after, seconds(60), ladder).unwrap())
}

struct World {
    clock: Arc<ManualClock>,
    bans: Bans,
    layer: Arc<LayerBans>,
}

impl World {
    fn new(rule: &Arc<BanRule>) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let bans = Bans::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let name = Arc::from("ip");
        let layer = bans.layer(&name);
        bans.apply([(&name, rule)]);
        Self { clock, bans, layer }
    }

    fn refuse(&self, key: &str) {
        self.layer.refused(key);
    }

    fn left(&self, key: &str) -> Option<u64> {
        self.layer.left(key, self.clock.now()).map(|left| left.as_secs())
    }

    fn events(&self) -> Vec<String> {
        let events = self.bans.take_events();
        let line = |event: &BanEvent| format!("{} {} {}", event.limit, event.key, event.kind);
        events.list.iter().map(line).collect()
    }

    fn known(&self) -> usize {
        let of = |shard: &shard::Shard| shard.lock().keys().entries.len();
        self.layer.shards.iter().map(of).sum()
    }
}

#[test]
fn a_ban_begins_and_ends_and_is_told() {
    let world = World::new(&rule(2, &[10]));
    world.refuse("a");
    assert_eq!(world.left("a"), None);
    world.refuse("a");
    world.refuse("b");
    assert_eq!((world.left("a"), world.left("b")), (Some(10), None));
    let all = world.bans.list();
    assert_eq!(
        (all.len(), &*all[0].key, all[0].until),
        (1, "a", START.plus(seconds(10)))
    );
    assert_eq!(world.events(), ["ip a began"]);
    world.clock.advance(seconds(10));
    assert_eq!(world.left("a"), None, "with nobody's help");
    assert!(world.bans.list().is_empty());
    world.bans.sweep();
    assert_eq!(world.events(), ["ip a ended"]);
    world.bans.sweep();
    assert_eq!(world.events(), Vec::<String>::new());
}

#[test]
fn a_lifted_ban_leaves_no_tally_and_no_rung() {
    let world = World::new(&rule(2, &[10, 20]));
    for rung in [10, 20] {
        world.refuse("a");
        world.refuse("a");
        assert_eq!(world.left("a"), Some(rung));
        world.clock.advance(seconds(rung));
    }
    world.refuse("a");
    assert!(!world.bans.lift("ip", "a"), "there is none at present");
    world.refuse("a");
    world.refuse("a");
    assert_eq!(
        world.left("a"),
        Some(10),
        "what was to be lifted is forgotten all the same"
    );
    assert!(world.bans.lift("ip", "a"));
    assert_eq!(world.left("a"), None);
    assert!(!world.bans.lift("ip", "a"));
    assert!(!world.bans.lift("another", "a"));
    world.refuse("a");
    assert_eq!(world.left("a"), None);
    assert_eq!(world.events().last().unwrap(), "ip a lifted");
}

#[test]
fn a_table_goes_with_its_layer() {
    let world = World::new(&rule(1, &[10]));
    world.refuse("a");
    let name = Arc::from("ip");
    world.bans.apply([(&name, &rule(5, &[99]))]);
    assert_eq!(world.left("a"), Some(10), "its rule is another, it is the same");
    world.bans.apply([]);
    assert_eq!(world.left("a"), None);
    // A request of the configuration before.
    world.refuse("a");
    assert_eq!(world.known(), 0);
    world.bans.apply([(&name, &rule(1, &[10]))]);
    assert_eq!(world.bans.layer(&name).left("a", START), None);
    assert_eq!(world.events(), ["ip a began", "ip a lifted"]);
}

#[test]
fn a_flood_of_keys_is_bounded_and_bans_nobody_free() {
    let world = World::new(&rule(3, &[600]));
    for banned in 0..100 {
        (0..3).for_each(|_| world.refuse(&format!("banned-{banned}")));
    }
    for often in 0..100 {
        (0..2).for_each(|_| world.refuse(&format!("often-{often}")));
    }
    for key in 0..2 * TABLE_MAX {
        world.refuse(&format!("key-{key}"));
    }
    assert!(world.known() <= TABLE_MAX, "{}", world.known());
    assert!(world.known() > TABLE_MAX / 2, "{}", world.known());
    assert!((0..100).all(|banned| world.left(&format!("banned-{banned}")).is_some()));
    for often in 0..100 {
        world.refuse(&format!("often-{often}"));
        assert!(
            world.left(&format!("often-{often}")).is_some(),
            "two refusals are remembered"
        );
    }
    // Nothing counts any more, and nothing is kept for it.
    world.clock.advance(seconds(61));
    world.bans.sweep();
    assert_eq!(world.known(), 200);
    world.clock.advance(seconds(600));
    world.bans.sweep();
    assert_eq!(world.known(), 0);
}

/// Where all that is known are bans, those that end first go.
#[test]
fn a_flood_of_bans_is_bounded() {
    let world = World::new(&rule(1, &[600]));
    for key in 0..TABLE_MAX + TABLE_MAX / 4 {
        world.refuse(&format!("key-{key}"));
        if key % 1_000 == 0 {
            world.clock.advance(Duration::from_millis(1));
        }
    }
    assert!(world.known() <= TABLE_MAX);
    assert_eq!(world.bans.list().len(), world.known());
    assert!(world.left(&format!("key-{}", TABLE_MAX + TABLE_MAX / 4 - 1)).is_some());
    assert_eq!(world.left("key-0"), None);
    let events = world.bans.take_events();
    assert_eq!(events.list.len(), EVENTS_MAX);
    assert!(events.dropped > 0);
    world.clock.advance(seconds(700));
    world.bans.sweep();
    assert!(
        world.layer.shards.iter().all(|shard| !shard.bans_anybody()),
        "counted right"
    );
}

#[cfg(feature = "redis")]
mod sharing {
    use super::*;
    use crate::ban::{
        record::Served,
        shared::{News, What},
    };

    fn news(world: &World) -> Vec<(String, What)> {
        let mut all: Vec<_> = (world.bans.take_news(1_000).into_iter())
            .map(|News { key, what, .. }| (String::from(key), what))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    fn ban(left: i64, rung: u32) -> Option<Served> {
        Some(Served {
            until: Timestamp::from_micros(START.as_micros().saturating_add_signed(left * 1_000_000)),
            rung,
            length: seconds(10),
        })
    }

    fn learn(world: &World, key: &str, ban: Option<Served>) {
        world.bans.learn([("ip".to_owned(), key, ban)]);
    }

    #[test]
    fn what_was_refused_is_told_in_sums_once() {
        let world = World::new(&rule(3, &[10]));
        world.refuse("before");
        assert_eq!(news(&world), [], "there is nobody to tell");
        world.bans.set_shared(true);
        world.refuse("a");
        world.clock.advance(seconds(1));
        for key in ["a", "b", "c", "c", "c"] {
            world.refuse(key);
        }
        let later = START.plus(seconds(1));
        let expected = [
            ("a".to_owned(), What::Refused(2, START)),
            ("b".to_owned(), What::Refused(1, later)),
            ("c".to_owned(), What::Banned(0, later)),
        ];
        let all = world.bans.take_news(1_000);
        assert_eq!(all.len(), 3);
        assert_eq!(all[0].what, What::Banned(0, later), "bans first");
        assert_eq!(news(&world), []);
        // It did not arrive, and may have.
        world.bans.put_back(&all, false);
        assert_eq!(news(&world), expected[2..]);
        world.bans.put_back(&all, true);
        world.refuse("a");
        assert_eq!(news(&world)[0], ("a".to_owned(), What::Banned(0, later)));
    }

    #[test]
    fn what_others_know_is_learned() {
        let world = World::new(&rule(3, &[10, 20]));
        world.bans.set_shared(true);
        world.refuse("a");
        world.refuse("a");
        learn(&world, "a", ban(7, 0));
        assert_eq!(world.left("a"), Some(7));
        assert_eq!(news(&world), [], "its tally is gone");
        learn(&world, "a", ban(7, 0));
        assert_eq!(world.events(), ["ip a began"], "once");
        // Over, but remembered: the next is on the next rung.
        learn(&world, "b", ban(-1, 0));
        assert_eq!(world.left("b"), None);
        (0..3).for_each(|_| world.refuse("b"));
        assert_eq!(world.left("b"), Some(20));
        learn(&world, "c", ban(-1_000, 0));
        assert_eq!(world.known(), 2, "that says nothing any more");
        learn(&world, "a", None);
        assert_eq!(world.left("a"), None);
        assert_eq!(world.events(), ["ip b began", "ip a lifted"]);
        world.bans.learn([("another".to_owned(), "a", ban(7, 0))]);
        assert_eq!(world.bans.list().len(), 1);
    }

    #[test]
    fn what_is_not_told_yet_is_not_taken_back() {
        let world = World::new(&rule(1, &[10]));
        world.bans.set_shared(true);
        world.refuse("a");
        for old in [None, ban(-1, 0), ban(3, 0)] {
            learn(&world, "a", old);
            assert_eq!(world.left("a"), Some(10), "{old:?}");
        }
        assert_eq!(news(&world), [("a".to_owned(), What::Banned(0, START))]);
        learn(&world, "a", None);
        assert_eq!(world.left("a"), None, "by now it was lifted");
    }

    #[test]
    fn bans_of_a_layer_that_is_gone_are_lifted_elsewhere() {
        let world = World::new(&rule(1, &[10]));
        world.bans.set_shared(true);
        world.refuse("a");
        assert_eq!(news(&world).len(), 1);
        assert!(world.bans.take_behind());
        assert!(!world.bans.take_behind());
        world.bans.apply([]);
        assert!(world.bans.has_business());
        let all = world.bans.take_news(1_000);
        assert_eq!((all.len(), all[0].what), (1, What::Lifted));
        assert!(!world.bans.has_business());
        world.bans.put_back(&all, false);
        assert_eq!(news(&world), [("a".to_owned(), What::Lifted)]);
        world.bans.apply([(&Arc::from("ip"), &rule(1, &[10]))]);
        assert!(world.bans.take_behind(), "a new layer asks for all");
    }

    #[test]
    fn all_that_is_in_force_can_be_told_again() {
        let world = World::new(&rule(1, &[10]));
        world.refuse("a");
        world.bans.set_shared(true);
        assert_eq!(news(&world), [("a".to_owned(), What::Banned(0, START))], "from before");
        world.bans.share_all();
        world.bans.share_all();
        assert_eq!(news(&world).len(), 1);
        world.clock.advance(seconds(10));
        world.bans.share_all();
        assert_eq!(news(&world), []);
    }
}
