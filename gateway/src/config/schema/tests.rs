//! That the schema, the documentation and `check` say the same.

mod validate;

use std::sync::LazyLock;

use limiter_core::test_util::Certificates;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    super::{Config, document, parse_with, raw::Key, tests::mistakes::MISTAKES},
    definitions, schema,
};
use validate::is_valid;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// For each mapping: documents that have one, and where. What is said of a key is true in one of them at least.
fn documents() -> Vec<(&'static str, &'static str, Value)> {
    let url = "http://127.0.0.1:8000";
    let upstreams = json!({"orders": {"endpoints": url}});
    let mut documents = vec![
        ("Config", "", json!({"upstreams": upstreams})),
        ("Listener", "/listen/0", json!({"listen": [{"address": "127.0.0.1:1"}]})),
        ("Admin", "/admin", json!({"admin": {}})),
        ("Store", "/store", json!({"store": {}})),
        ("Memory", "/store/memory", json!({"store": {"memory": {}}})),
        (
            "Redis",
            "/store/redis",
            json!({"store": {"redis": {"url": "redis://127.0.0.1"}}}),
        ),
        (
            "Redis",
            "/store/redis",
            json!({"store": {"redis": {"url": "rediss://127.0.0.1"}}}),
        ),
        (
            "RedisTls",
            "/store/redis/tls",
            json!({"store": {"redis": {
                "url": "rediss://127.0.0.1",
                "tls": {"ca": "redis-ca.pem", "cert": "redis-client.pem", "key": "redis-client.key"},
            }}}),
        ),
        ("ClientIp", "/client_ip", json!({"client_ip": {}})),
        ("Upstream", "/upstreams/orders", json!({"upstreams": upstreams})),
        (
            "AdaptiveConcurrency",
            "/upstreams/orders/adaptive_concurrency",
            json!({"upstreams": {"orders": {"endpoints": url, "adaptive_concurrency": {"min": 1}}}}),
        ),
        (
            "AdaptiveConcurrency",
            "/upstreams/orders/adaptive_concurrency",
            json!({"upstreams": {"orders": {"endpoints": url, "adaptive_concurrency": {"max": 1_000_000}}}}),
        ),
        (
            "Endpoint",
            "/upstreams/orders/endpoints/0",
            json!({"upstreams": {"orders": {"endpoints": [{"url": url}]}}}),
        ),
        (
            "Route",
            "/routes/0",
            json!({"upstreams": upstreams, "routes": [{"path": "/a", "upstream": "orders"}]}),
        ),
        ("Route", "/routes/0", json!({"routes": [{"path": "/a"}]})),
        (
            "Respond",
            "/routes/0/respond",
            json!({"routes": [{"path": "/a", "respond": {}}]}),
        ),
        ("Jwt", "/jwt", json!({"jwt": {}})),
        ("Jwt", "/jwt", json!({"jwt": {"jwks_file": "jwks.json"}})),
        ("Responses", "/responses", json!({"responses": {}})),
        (
            "Rejection",
            "/responses/rejection",
            json!({"upstreams": {"fallback": {"endpoints": url}}, "responses": {"rejection": {}}}),
        ),
        (
            "RejectionBody",
            "/responses/rejection/body",
            json!({"responses": {"rejection": {"body": {"content_type": "text/plain", "template": "no"}}}}),
        ),
        (
            "Cors",
            "/responses/cors",
            json!({"responses": {"cors": {"allow_origin": "*"}}}),
        ),
        (
            "Lease",
            "/limits/0/lease",
            json!({"limits": [{"name": "a", "key": "ip", "algorithm": "token_bucket", "rate": "500/s", "precision": "leased", "lease": {}}]}),
        ),
        ("Server", "/server", json!({"server": {}})),
        ("Log", "/log", json!({"log": {}})),
    ];
    for algorithm in [
        json!({"algorithm": "token_bucket", "rate": "100/s"}),
        json!({"algorithm": "leaky_bucket", "rate": "100/s"}),
        json!({"algorithm": "fixed_window", "limit": 100, "window": "1d"}),
        json!({"algorithm": "sliding_window_log", "limit": 100, "window": "1s"}),
        json!({"algorithm": "sliding_window_counter", "limit": 100, "window": "1s"}),
        json!({"algorithm": "concurrency", "limit": 100}),
    ] {
        let mut limit = json!({"name": "a", "key": "header:x-user-id", "match": {"path": "/a"}});
        let algorithm = algorithm.as_object().unwrap();
        limit.as_object_mut().unwrap().extend(algorithm.clone());
        let mut parameters = algorithm.clone();
        parameters.remove("algorithm");
        for terms in [json!({}), parameters.into()] {
            let (mut limit, mut item) = (limit.clone(), json!({"values": "a"}));
            item.as_object_mut().unwrap().extend(terms.as_object().unwrap().clone());
            limit["overrides"] = json!([item]);
            documents.push(("Override", "/limits/0/overrides/0", json!({"limits": [limit]})));
        }
        let mut tried = limit.clone();
        tried["candidate"] = json!(algorithm);
        documents.push(("Candidate", "/limits/0/candidate", json!({"limits": [tried]})));
        for cost in [json!({"header": "x-a"}), json!({"response_header": "x-a"})] {
            let mut limit = limit.clone();
            limit["cost"] = cost;
            documents.push(("Cost", "/limits/0/cost", json!({"limits": [limit]})));
        }
        let mut banning = limit.clone();
        banning["ban"] = json!({"after": 1, "within": "1s", "for": "1s"});
        documents.push(("Ban", "/limits/0/ban", json!({"limits": [banning]})));
        let mut settled = limit.clone();
        settled["charge"] = json!({"status": 401});
        documents.push(("Charge", "/limits/0/charge", json!({"limits": [settled]})));
        documents.push(("Limit", "/limits/0", json!({"limits": [limit]})));
        documents.push(("Match", "/limits/0/match", json!({"limits": [limit]})));
    }
    documents
}

/// The files that examples name, and the configuration among them.
static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    let (folder, made) = (TempDir::new().unwrap(), Certificates::make());
    for (name, from) in [
        ("redis-ca.pem", made.ca()),
        ("redis-client.pem", made.client_cert()),
        ("redis-client.key", made.client_key()),
    ] {
        std::fs::copy(from, folder.path().join(name)).unwrap();
    }
    let keys = r#"{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}"#;
    std::fs::write(folder.path().join("jwks.json"), keys).unwrap();
    std::fs::write(folder.path().join("overrides.yaml"), "- {values: a, unlimited: true}").unwrap();
    folder
});

fn checked(document: &Value) -> Option<Config> {
    let file = FOLDER.path().join("f").display().to_string();
    let mut config = parse_with(&file, &document.to_string(), &|_| Some("x".into())).ok()?;
    // They tell places, and these documents differ in them.
    config.warnings.clear();
    Some(config)
}

/// The document, changed at `pointer`.
fn with(document: &Value, pointer: &str, key: &str, value: Option<Value>) -> Value {
    let mut document = document.clone();
    let mapping = document.pointer_mut(pointer).unwrap().as_object_mut().unwrap();
    mapping.remove(key);
    mapping.extend(value.map(|value| (key.to_owned(), value)));
    document
}

fn yaml(text: &str) -> Value {
    serde_yaml::from_str(text).unwrap()
}

/// What is said to be taken, and what is said not to be.
fn values(key: &Key) -> (Vec<Value>, Vec<Value>) {
    let facts = &key.facts;
    assert!(!key.meaning.is_empty() && !facts.example.is_empty(), "{}", key.name);
    let mut good = vec![yaml(facts.example)];
    good.extend(facts.words.iter().map(|word| json!(word)));
    let mut bad = vec![Value::Null];
    if !facts.default.is_empty() {
        good.push(yaml(facts.default));
    }
    if !facts.words.is_empty() {
        bad.push(json!("another"));
    }
    let (min, max) = facts.range;
    if max < u64::MAX {
        good.push(json!(min));
        bad.push(json!(i128::from(min) - 1));
        bad.push(json!(max + 1));
    }
    // The greatest whole number is not one for every algorithm.
    if max < 1 << 52 {
        good.push(json!(max));
    }
    (good, bad)
}

#[test]
fn what_is_said_of_keys_is_so() {
    let (schema, documents, (_, definitions)) = (schema(), documents(), definitions());
    for (name, definition) in &definitions.0 {
        let documents: Vec<_> = documents.iter().filter(|(of, ..)| of == name).collect();
        for key in &definition.keys {
            let at = format!("{name}.{}", key.name);
            let (good, bad) = values(key);
            for value in good {
                let mut made = documents
                    .iter()
                    .map(|(_, at, base)| with(base, at, key.name, Some(value.clone())));
                let taken = made.find(|document| checked(document).is_some());
                let taken = taken.unwrap_or_else(|| panic!("{at}: {value} is refused"));
                assert!(is_valid(&taken, &schema), "{at}: the schema refuses {value}");
            }
            for value in bad {
                for (_, at, base) in &documents {
                    let made = with(base, at, key.name, Some(value.clone()));
                    assert!(checked(&made).is_none(), "{name}.{}: {value} is taken", key.name);
                    assert!(
                        !is_valid(&made, &schema),
                        "{name}.{}: the schema takes {value}",
                        key.name
                    );
                }
            }
        }
    }
}

/// The words that `check` names where it does not know one.
fn expected_words(document: &Value) -> Vec<String> {
    let error = parse_with("f", &document.to_string(), &|_| None).expect_err("an unknown word");
    let error = error.to_string();
    let (_, expected) = error.split_once(", expected ").unwrap_or_default();
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn no_word_is_left_unsaid() {
    let (_, definitions) = definitions();
    for (name, at, base) in &documents() {
        let keys = definitions.0[name].keys.iter();
        for key in keys.filter(|key| !key.facts.words.is_empty()) {
            for word in expected_words(&with(base, at, key.name, Some(json!("another")))) {
                let is_taken = checked(&with(base, at, key.name, Some(json!(word)))).is_some();
                let is_said = key.facts.words.contains(&word.as_str());
                assert!(is_said || !is_taken, "{name}.{}: {word} is taken", key.name);
            }
        }
    }
}

/// Whether the schema takes what `check` takes.
pub(in crate::config) fn takes(text: &str) -> bool {
    let document = document::read(text, "a configuration", &|_| None, &mut Vec::new()).unwrap();
    is_valid(&serde_json::to_value(document.value).unwrap(), &schema())
}

#[test]
fn a_default_is_what_is_so_without_the_key() {
    let (_, definitions) = definitions();
    for (name, at, base) in &documents() {
        for key in &definitions.0[name].keys {
            let without = with(base, at, key.name, None);
            if key.facts.required {
                assert!(checked(&without).is_none(), "{name}.{} is not required", key.name);
            }
            let default = (!key.facts.default.is_empty()).then(|| yaml(key.facts.default));
            let explicit = with(base, at, key.name, default);
            if let (Some(without), Some(explicit)) = (checked(&without), checked(&explicit)) {
                assert_eq!(format!("{without:?}"), format!("{explicit:?}"), "{name}.{}", key.name);
            }
        }
    }
}

#[test]
fn one_of_two_keys_is_one() {
    let schema = schema();
    for (document, is_fine) in [
        (json!({"routes": [{"path": "/a"}]}), false),
        (json!({"routes": [{"path": "/a", "respond": {}}]}), true),
        (
            json!({"routes": [{"path": "/a", "respond": {}, "upstream": "orders"}]}),
            false,
        ),
        (json!({"store": {}}), false),
        (json!({"store": {"memory": {}}}), true),
        (
            json!({"store": {"memory": {}, "redis": {"url": "redis://127.0.0.1"}}}),
            false,
        ),
    ] {
        assert_eq!(is_valid(&document, &schema), is_fine, "{document}");
        assert_eq!(checked(&document).is_some(), is_fine, "{document}");
    }
}

#[test]
fn files_that_are_shipped_are_valid() {
    let schema = schema();
    let read = |name: &str| std::fs::read_to_string(format!("{ROOT}/{name}")).unwrap();
    let shipped = yaml(&read("gateway.yaml"));
    assert!(is_valid(&shipped, &schema));
    let pages = ["README.md", "docs/configuration.md", "docs/limits.md", "docs/redis.md"];
    for page in pages {
        let text = read(page);
        for block in text.split("```yaml\n").skip(1) {
            let block = block.split("```").next().unwrap();
            let document = yaml(block);
            assert!(document.is_null() || is_valid(&document, &schema), "{page}: {block}");
        }
    }
}

#[test]
fn unknown_keys_are_not_valid() {
    let schema = schema();
    for (name, at, base) in documents() {
        for key in ["nmae", "later", "jwt", "tls", "max_wait", "candidate"] {
            let document = with(&base, at, key, Some(json!("x")));
            assert!(!is_valid(&document, &schema), "{name}: {key}");
        }
    }
    let mut count = 0;
    for (what, text, expected) in MISTAKES {
        // What belongs to another algorithm is known to the schema.
        let is_unknown = expected.contains(": unknown key, ");
        if let Ok(document) = serde_yaml::from_str::<Value>(text)
            && is_unknown
        {
            assert!(!is_valid(&document, &schema), "{what}: {text}");
            count += 1;
        }
    }
    assert!(count > 10, "{count}");
}
