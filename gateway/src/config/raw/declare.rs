//! The macros that declare mappings and leaves.

/// Declares the shapes that are single values: what a message says was expected, and what the schema says.
macro_rules! leaf {
    ($($(#[$doc:meta])* $name:ident: $expected:literal { $kind:literal, $form:expr };)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug)]
            pub(in crate::config) struct $name(Scalar);

            impl Shape for $name {
                fn expected() -> String {
                    $expected.into()
                }

                fn read(value: serde_yaml::Value) -> Option<Self> {
                    Scalar::read(value).map(Self)
                }

                fn json(&self) -> Option<serde_json::Value> {
                    Some(self.0.json())
                }

                fn kind(facts: &Facts) -> Option<String> {
                    Some(facts.kind($kind))
                }

                fn schema(definitions: &mut Definitions, facts: &Facts) -> Option<serde_json::Value> {
                    Some(definitions.leaf(stringify!($name), $expected, &$form, facts))
                }
            }

            impl Leaf for $name {
                fn scalar(&self) -> &Scalar {
                    &self.0
                }
            }
        )*
    };
}

/// Declares a mapping: its keys, with the shapes of their values and what is to be said of them, and the keys that are
/// known by name only. `..name: Type = function;` stands for the keys of a [`Part`], which that function tells.
macro_rules! mapping {
    (
        $(#[$doc:meta])*
        $name:ident: $expected:literal {
            $(
                $(#[doc = $meaning:literal])*
                $field:ident: $type:ty { $($fact:ident: $value:expr),* $(,)? },
            )*
            $(
                ..$part:ident: $keys:ty = $tell:path;
                $(
                    $(#[doc = $after_meaning:literal])*
                    $after:ident: $after_type:ty { $($after_fact:ident: $after_value:expr),* $(,)? },
                )*
            )?
        } later [$($later:ident),*]
    ) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(in crate::config) struct $name {
            $(
                $(#[doc = $meaning])*
                pub(in crate::config) $field: Field<$type>,
            )*
            $(
                pub(in crate::config) $part: $keys,
                $(
                    $(#[doc = $after_meaning])*
                    pub(in crate::config) $after: Field<$after_type>,
                )*
            )?
            other: Vec<String>,
        }

        impl Shape for $name {
            fn expected() -> String {
                $expected.into()
            }

            fn read(value: serde_yaml::Value) -> Option<Self> {
                let serde_yaml::Value::Mapping(entries) = value else {
                    return None;
                };
                let mut this = Self::default();
                for (key, value) in entries {
                    let key = field::key_text(key);
                    $(
                        if key == field::key_name(stringify!($field)) {
                            this.$field = Field::read(value);
                            continue;
                        }
                    )*
                    $(
                        if <$keys as field::Part>::KEYS.contains(&key.as_str()) {
                            field::Part::set(&mut this.$part, &key, value);
                            continue;
                        }
                        $(
                            if key == field::key_name(stringify!($after)) {
                                this.$after = Field::read(value);
                                continue;
                            }
                        )*
                    )?
                    this.other.push(key);
                }
                Some(this)
            }

            fn kind(_: &Facts) -> Option<String> {
                Some("mapping".into())
            }

            fn schema(definitions: &mut Definitions, _: &Facts) -> Option<serde_json::Value> {
                Some(definitions.mapping(stringify!($name), |definitions| {
                    let keys = [$(
                        definitions.key::<$type>(
                            field::key_name(stringify!($field)),
                            concat!($($meaning),*).trim(),
                            Facts { $($fact: $value,)* ..Facts::NONE },
                        )
                    ),*];
                    let keys = keys.into_iter().flatten();
                    $(
                        let keys = keys.chain($tell(definitions));
                        $(
                            let keys = keys.chain(definitions.key::<$after_type>(
                                field::key_name(stringify!($after)),
                                concat!($($after_meaning),*).trim(),
                                Facts { $($after_fact: $after_value,)* ..Facts::NONE },
                            ));
                        )*
                    )?
                    keys.collect()
                }))
            }
        }

        impl Mapping for $name {
            fn keys() -> Vec<&'static str> {
                let keys = [$(field::key_name(stringify!($field))),*].into_iter();
                $(
                    let keys = keys.chain(<$keys as field::Part>::KEYS.iter().copied());
                    let keys = keys.chain([$(field::key_name(stringify!($after))),*]);
                )?
                keys.collect()
            }

            fn later() -> &'static [&'static str] {
                &[$(stringify!($later)),*]
            }

            fn other(&self) -> &[String] {
                &self.other
            }
        }
    };
}

pub(super) use {leaf, mapping};
