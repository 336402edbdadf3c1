use super::*;
use proptest::prelude::*;

#[test]
fn one_spelling() {
    for (raw, expected) in [
        ("/", "/"),
        ("//", "/"),
        ("/login", "/login"),
        ("//login", "/login"),
        ("/./login", "/login"),
        ("/x/../login", "/login"),
        ("/../../login", "/login"),
        ("/%6Cogin", "/login"),
        ("/%6cogin", "/login"),
        ("/a/.", "/a/"),
        ("/a/..", "/"),
        ("/a/b/..", "/a/"),
        ("/a/%2e%2E/b", "/b"),
        ("/a/.%2e/b", "/b"),
        ("/%2e", "/"),
        ("/a//../b", "/b"),
        ("/a/b///c//", "/a/b/c/"),
        ("/a%2fb", "/a%2Fb"),
        ("/a%2F..%2Fb", "/a%2F..%2Fb"),
        ("/%252e%252e/a", "/%252e%252e/a"),
        ("/...", "/..."),
        ("/.well-known/x", "/.well-known/x"),
        ("/a/..b/c", "/a/..b/c"),
        ("/a;v=1/b", "/a;v=1/b"),
        ("/%7euser/%41", "/~user/A"),
        ("/caf\u{e9}", "/caf%C3%A9"),
        ("/caf%c3%a9", "/caf%C3%A9"),
        ("/{a}|b", "/%7Ba%7D%7Cb"),
    ] {
        assert_eq!(normalise(raw).as_deref(), Ok(expected), "{raw}");
    }
}

#[test]
fn refused() {
    for (raw, expected) in [
        ("/%", BadPath::Escape),
        ("/%4", BadPath::Escape),
        ("/%4g", BadPath::Escape),
        ("/%+4", BadPath::Escape),
        ("/%/a", BadPath::Escape),
        ("/a%00b", BadPath::Nul),
        ("/a\0b", BadPath::Nul),
        ("/a\\b", BadPath::Backslash),
        ("/a%5cb", BadPath::Backslash),
        ("/a%5Cb", BadPath::Backslash),
        ("", BadPath::Relative),
        ("*", BadPath::Relative),
        ("a/b", BadPath::Relative),
    ] {
        assert_eq!(normalise(raw), Err(expected), "{raw}");
    }
}

#[test]
fn a_refused_part_is_refused_even_where_dots_would_remove_it() {
    assert_eq!(normalise("/%zz/../a"), Err(BadPath::Escape));
    assert_eq!(normalise("/a%5Cb/.."), Err(BadPath::Backslash));
}

#[test]
fn nothing_to_change_is_borrowed() {
    for raw in [
        "/",
        "/v1/orders/17",
        "/a/",
        "/a%2Fb/%C3%A9",
        "/.well-known/..x/...",
        "/a:b@c!$&'()*+,;=~",
    ] {
        assert!(matches!(normalise(raw), Ok(Cow::Borrowed(_))), "{raw}");
    }
}

proptest! {
    #[test]
    fn idempotent_and_canonical(raw in "/([/.%aZ2eEfF5cC~é{]|%2[eEfF]|%[46][1-9a-f]|\\.\\.){0,12}") {
        if let Ok(once) = normalise(&raw) {
            let twice = normalise(&once).map(Cow::into_owned);
            prop_assert_eq!(twice.as_deref(), Ok(&*once));
            prop_assert!(is_normal(once.as_bytes()));
            prop_assert!(once.is_ascii() && once.starts_with('/') && !once.contains("//"));
            prop_assert!(once.split('/').all(|segment| segment != "." && segment != ".."));
            prop_assert_eq!(matches!(normalise(&raw), Ok(Cow::Borrowed(_))), *once == *raw);
        }
    }

    #[test]
    fn escaping_unreserved_characters_changes_nothing(path in "(/[a-z.~]{0,3}){1,5}", escape in any::<u64>()) {
        let respelled: String = path.bytes().enumerate().map(|(i, byte)| {
            if byte != b'/' && escape >> (i % 64) & 1 == 1 { format!("%{byte:02x}") } else { char::from(byte).to_string() }
        }).collect();
        prop_assert_eq!(normalise(&respelled).unwrap(), normalise(&path).unwrap());
    }

    #[test]
    fn never_panics(raw in ".*") {
        prop_assert!(normalise(&raw).is_ok_and(|path| path.starts_with('/')) || !raw.starts_with('/') || raw.contains(['%', '\\', '\0']));
        let absolute = format!("/{raw}");
        prop_assert_ne!(normalise(&absolute), Err(BadPath::Relative));
    }
}
