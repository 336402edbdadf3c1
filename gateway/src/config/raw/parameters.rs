//! The algorithms and their parameters: one list for a layer, its candidate and its overrides.

use serde_yaml::Value;

use super::{
    describe::{Definitions, Facts, Key},
    field::{Field, Part, Shape},
    leaves::{Flag, Length, MAX, Rate, Span, Text, Whole, Word},
    limit::Lease,
};

/// The algorithms that this version has.
pub(super) const ALGORITHMS: &[&str] = &[
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "sliding_window_log",
    "sliding_window_counter",
    "concurrency",
];

/// Declares [`Parameters`]: each with the algorithms that it is `of`. One that is `required` is so of these only.
macro_rules! parameters {
    ($(
        $(#[doc = $meaning:literal])*
        $field:ident: $type:ty { of: $of:literal, $($fact:ident: $value:expr),* $(,)? },
    )*) => {
        /// What is written of the parameters of an algorithm.
        #[derive(Clone, Debug, Default)]
        pub(in crate::config) struct Parameters {
            $(
                $(#[doc = $meaning])*
                pub(in crate::config) $field: Field<$type>,
            )*
        }

        impl Part for Parameters {
            const KEYS: &'static [&'static str] = &[$(stringify!($field)),*];

            fn set(&mut self, key: &str, value: Value) {
                match key {
                    $(stringify!($field) => self.$field = Field::read(value),)*
                    _ => {}
                }
            }
        }

        impl Parameters {
            /// The keys that are there, right or wrong.
            pub(in crate::config) fn written(&self) -> Vec<&'static str> {
                let all = [$((stringify!($field), self.$field.is_present())),*];
                all.into_iter().filter_map(|(key, is_present)| is_present.then_some(key)).collect()
            }

            /// These, and those of `base` in place of what is not written here.
            pub(in crate::config) fn over(&self, base: &Self) -> Self {
                Self {
                    $($field: if self.$field.is_present() { &self.$field } else { &base.$field }.clone(),)*
                }
            }

            /// These, without how units are leased: that is no matter of the algorithm then.
            pub(in crate::config) fn without_lease(&self) -> Self {
                let lease = Field::default();
                Self { lease, ..self.clone() }
            }

            /// What an algorithm of this name goes by: what is written here, and else the defaults that have a value.
            pub(in crate::config) fn of_algorithm(&self, name: &str) -> serde_json::Map<String, serde_json::Value> {
                let name = format!("`{name}`");
                let mut all = serde_json::Map::new();
                $(if $of.contains(&name) {
                    let facts = Facts { $($fact: $value,)* ..Facts::NONE };
                    let value = match self.$field.value() {
                        Some(written) => written.json(),
                        None => facts.default_value(),
                    };
                    all.extend(value.map(|value| (stringify!($field).to_owned(), value)));
                })*
                all
            }

            /// The keys, as a layer and its candidate have them.
            pub(super) fn of_layer(definitions: &mut Definitions) -> Vec<Key> {
                let keys = [$({
                    let facts = Facts { $($fact: $value,)* ..Facts::NONE };
                    let required = if facts.required { ": required" } else { "" };
                    let meaning = format!("{} {}{required}.", concat!($($meaning),*).trim(), $of);
                    definitions.key::<$type>(stringify!($field), &meaning, Facts { required: false, ..facts })
                }),*];
                keys.into_iter().flatten().collect()
            }

            /// The keys, as an override has them.
            pub(super) fn of_override(definitions: &mut Definitions) -> Vec<Key> {
                let keys = [$({
                    let facts = Facts { $($fact: $value,)* ..Facts::NONE };
                    let meaning = concat!($of, ".");
                    definitions.key::<$type>(stringify!($field), meaning, facts.of_override())
                }),*];
                keys.into_iter().flatten().collect()
            }
        }
    };
}

impl Facts {
    /// Of a parameter that goes before the layer's.
    const fn of_override(self) -> Self {
        Self {
            required: false,
            default: "",
            otherwise: "as the layer says",
            ..self
        }
    }
}

parameters! {
    /// What comes back in a time.
    rate: Rate { of: "`token_bucket`, `leaky_bucket`", required: true, example: "100/s" },
    /// What passes at once after a pause.
    burst: Whole {
        of: "`token_bucket`", range: (1, MAX), otherwise: "the number in the rate, as written", example: "200",
    },
    /// The longest that a request waits for its token, where there is none at once; then it is refused at once.
    max_wait: Span { of: "`token_bucket`", otherwise: "no wait", example: "2s" },
    /// Untouched for that long, a key is cold: it has no burst, and its rate begins at a third, and climbs in ten equal
    /// steps over that time.
    warm_up: Span { of: "`token_bucket` without `max_wait`", otherwise: "always warm", example: "30s" },
    /// What passes at once, or is taken into the queue.
    capacity: Whole {
        of: "`leaky_bucket`", range: (1, MAX), otherwise: "one second's worth, at least 1", example: "4",
    },
    /// Whether admitted requests wait for their turn and leave `1/rate` apart; `false` only measures and refuses.
    delay: Flag { of: "`leaky_bucket`", default: "true", example: "false" },
    /// A request whose turn is later is refused.
    max_delay: Span { of: "`leaky_bucket` with `delay: true`", default: "10s", example: "2s" },
    /// What passes in a window, of a log at most 100,000; or what is in flight at once.
    limit: Whole {
        of: "`fixed_window`, `sliding_window_log`, `sliding_window_counter`, `concurrency`", required: true,
        range: (1, MAX), example: "500",
    },
    /// The window's length; `1mo`, a month of the calendar, only of `fixed_window`.
    window: Length {
        of: "`fixed_window`, `sliding_window_log`, `sliding_window_counter`", required: true, example: "1m",
    },
    /// Where windows begin: with the clock's, or with the first request.
    align: Word {
        of: "`fixed_window`", words: &["clock", "first_request"], default: "clock", example: "first_request",
    },
    /// Whose days, weeks and months: the name of a time zone.
    timezone: Text {
        of: "`fixed_window` with `align: clock` and a window of whole days or weeks, or `1mo`",
        default: "UTC", example: "Europe/Berlin",
    },
    /// Parts that the window is counted in.
    buckets: Whole { of: "`sliding_window_counter`", range: (1, 60), default: "6", example: "10" },
    /// How gateways that share a store hold what is in flight, or, with `precision: leased`, units that are not used yet.
    lease: Lease { of: "`concurrency`, or any with `precision: leased`", otherwise: "`{ttl: 1s}`", example: "{ttl: 3s}" },
}
