use super::*;

fn parsed(text: &str) -> RedisUrl {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn access(username: Option<&str>, password: Option<&str>, database: u8) -> Access {
    Access {
        username: username.map(str::to_owned),
        password: password.map(str::to_owned),
        database,
        tls: None,
    }
}

fn standalone(host: &str, port: u16) -> Servers {
    Servers::Standalone(Address::new(host, port))
}

#[test]
fn one_server() {
    for (text, servers, expected) in [
        ("redis://h", standalone("h", 6379), access(None, None, 0)),
        ("redis://h/", standalone("h", 6379), access(None, None, 0)),
        (
            "redis://10.0.0.9:6380/15",
            standalone("10.0.0.9", 6380),
            access(None, None, 15),
        ),
        ("redis://[::1]:1/255", standalone("::1", 1), access(None, None, 255)),
        ("redis://:p@h", standalone("h", 6379), access(None, Some("p"), 0)),
        (
            "redis://u:p@h/2",
            standalone("h", 6379),
            access(Some("u"), Some("p"), 2),
        ),
        (
            "redis://u%40x:%2F%3a%C3%A9@h",
            standalone("h", 6379),
            access(Some("u@x"), Some("/:é"), 0),
        ),
        (
            "redis://u:p@ss:w@h",
            standalone("h", 6379),
            access(Some("u"), Some("p@ss:w"), 0),
        ),
        ("redis://:@h", standalone("h", 6379), access(None, None, 0)),
    ] {
        let url = parsed(text);
        assert_eq!(
            (url.servers, url.access, url.secure),
            (servers, expected, false),
            "{text}"
        );
    }
}

#[test]
fn a_cluster() {
    let nodes = vec![
        Address::new("a", 6379),
        Address::new("::1", 7001),
        Address::new("c", 7002),
    ];
    for text in [
        "redis-cluster://u:p@a,[::1]:7001,c:7002",
        "redis-cluster://u:p@a,[::1]:7001,c:7002/0",
    ] {
        let url = parsed(text);
        assert_eq!(url.servers, Servers::Cluster(nodes.clone()), "{text}");
        assert_eq!(url.access, access(Some("u"), Some("p"), 0));
        assert!(!url.secure);
    }
}

#[test]
fn sentinels() {
    let url = parsed("redis-sentinel://u:p@s1,s2:1,[::1]/my%20primary?db=3&sentinel_user=s%26&sentinel_password=%3D");
    let sentinels = vec![
        Address::new("s1", 26379),
        Address::new("s2", 1),
        Address::new("::1", 26379),
    ];
    let expected = Servers::Sentinel {
        sentinels,
        service: "my primary".to_owned(),
        access: access(Some("s&"), Some("="), 0),
    };
    assert_eq!(url.servers, expected);
    assert_eq!(url.access, access(Some("u"), Some("p"), 3));

    let bare = parsed("redis-sentinel://s/n");
    let Servers::Sentinel {
        access: of_sentinel, ..
    } = bare.servers
    else {
        panic!("{bare:?}")
    };
    assert_eq!((bare.access, of_sentinel), (Access::default(), Access::default()));
}

#[test]
fn tls_for_all_kinds() {
    for text in ["rediss://h", "rediss-cluster://h", "rediss-sentinel://h/n"] {
        let mut url = parsed(text);
        assert!(url.secure, "{text}");
        assert_eq!(url.access.tls, None);
        let tls = Tls::with_system_roots();
        let Ok(tls) = tls else { continue };
        url.set_tls(&tls);
        assert_eq!(url.access.tls.as_ref(), Some(&tls));
        if let Servers::Sentinel { access, .. } = url.servers {
            assert_eq!(access.tls, Some(tls));
        }
    }
}

#[test]
fn each_mistake_is_told_and_the_password_is_not() {
    use UrlError as E;
    let scheme = |text: &str| E::Scheme(text.to_owned());
    for (text, error) in [
        ("", E::NotAUrl),
        ("h:6379", E::NotAUrl),
        ("redis:hunter2@h", E::NotAUrl),
        ("redis:hunter2@h://", E::NotAUrl),
        ("http://u:hunter2@h", scheme("http")),
        ("redis-proxy://u:hunter2@h", scheme("redis-proxy")),
        ("valkeys-cluster://h", scheme("valkeys-cluster")),
        ("redis://u:hunter2/@h", E::Unencoded),
        ("redis://u:hunter2?@h", E::Unencoded),
        ("redis://u:hunter2#@h", E::Unencoded),
        ("redis-sentinel://h/n?sentinel_password=hunter2@", E::Unencoded),
        ("redis://u:hunter2%@h", E::Encoding),
        ("redis://u:hunter2%4@h", E::Encoding),
        ("redis://u:hunter2%+1@h", E::Encoding),
        ("redis://u:hunter2%ff@h", E::Encoding),
        ("redis-sentinel://h/n?sentinel_password=hunter2%zz", E::Encoding),
        ("redis://hunter2@h", E::NoPassword),
        ("redis-sentinel://h/n?sentinel_user=hunter2", E::NoPassword),
        ("redis://", AddressError::NoHost.into()),
        ("redis://:hunter2@", AddressError::NoHost.into()),
        ("redis://:hunter2@:6379", AddressError::NoHost.into()),
        ("redis-cluster://:hunter2@a,,b", AddressError::NoHost.into()),
        ("redis://hunter 2", AddressError::Host.into()),
        ("redis://[::1", AddressError::Host.into()),
        ("redis://u:hunter2", AddressError::Port.into()),
        ("redis-sentinel://a:1,b:hunter2/n", AddressError::Port.into()),
        ("redis://:hunter2@a,b", E::SeveralHosts),
        ("redis://:hunter2@a/256", E::Database),
        ("redis://:hunter2@a/-1", E::Database),
        ("redis://:hunter2@a/x", E::Database),
        ("redis-sentinel://a/n?db=hunter2", E::Database),
        ("redis-cluster://:hunter2@a/1", E::ClusterDatabase),
        ("redis-sentinel://:hunter2@a", E::NoService),
        ("redis-sentinel://:hunter2@a/?db=1", E::NoService),
        ("redis://:hunter2@a/0?db=1", E::Parameters),
        ("redis-cluster://:hunter2@a?x", E::Parameters),
        ("redis-sentinel://a/n?hunter2=1", E::Parameter),
        ("redis-sentinel://a/n?db=1&db=2", E::Repeated("db")),
    ] {
        let told = text.parse::<RedisUrl>().unwrap_err();
        assert_eq!(told, error, "{text}");
        let shown = format!("{told} {told:?}");
        assert!(!shown.contains("hunter2"), "{text}: {shown}");
    }
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(redis(s|-cluster|-sentinel)?://)?[a-c0-9:@/?#%&=,\\[\\]é.+-]{0,30}") {
        drop(text.parse::<RedisUrl>());
    }

    #[test]
    fn what_is_encoded_comes_back(user in "\\PC{1,8}", password in "\\PC{1,8}") {
        let encoded = |text: &str| text.bytes().map(|b| format!("%{b:02X}")).collect::<String>();
        let url = parsed(&format!("redis://{}:{}@h", encoded(&user), encoded(&password)));
        proptest::prop_assert_eq!(url.access, access(Some(&user), Some(&password), 0));
    }
}
