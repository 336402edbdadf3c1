//! Who a request is counted as: its address, or what a header says.

use std::net::SocketAddr;

use crate::support::{Client, Crowd, Gateway, Origin, Redis, Request, Settings, Tally, get};

/// Counts by address, trusting every peer of the test.
fn by_address(origin: &Origin, limit: u64) -> Settings {
    counting_by("ip", origin, limit).section("client_ip: {trusted_proxies: [127.0.0.0/8]}")
}

fn counting_by(key: &str, origin: &Origin, limit: u64) -> Settings {
    Settings::forwarding_to(origin).limit(&format!(
        "{{name: each, key: \"{key}\", algorithm: sliding_window_log, limit: {limit}, window: 60s}}"
    ))
}

fn forwarded_for(value: &str) -> Request {
    get("/").header("X-Forwarded-For", value)
}

/// How many of these pass, sent one after the other.
async fn passed<'a>(client: &mut Client, values: impl IntoIterator<Item = &'a str>) -> usize {
    let mut tally = Tally::default();
    for value in values {
        tally.add(&client.send(&forwarded_for(value)).await);
    }
    assert_eq!(
        tally.passed() + tally.denied(),
        tally.0.values().sum::<usize>(),
        "{tally:?}"
    );
    tally.passed()
}

/// Case 051.
#[tokio::test]
async fn a_client_cannot_invent_its_address() {
    let origin = Origin::start().await;
    let gateway = Gateway::with(&counting_by("ip", &origin, 5)).start().await;
    let victim = "127.0.0.3";
    let mut client = gateway.client().from("127.0.0.2");
    let mut tally = Tally::default();
    for number in 0..50 {
        let invented = if number % 2 == 0 {
            victim.to_owned()
        } else {
            format!("198.51.100.{number}")
        };
        let request = forwarded_for(&invented)
            .header("X-Real-IP", &invented)
            .header("Forwarded", &format!("for={invented}"))
            .header("True-Client-IP", &invented)
            .header("CF-Connecting-IP", &invented);
        tally.add(&client.send(&request).await);
    }
    tally.expect(5, 45, "one peer under many names");
    for seen in origin.requests() {
        let forwarded = seen.header_lines("x-forwarded-for").join(",");
        assert_eq!(
            forwarded.rsplit(',').next().map(str::trim),
            Some("127.0.0.2"),
            "{forwarded}"
        );
        assert!(
            seen.header_lines("x-real-ip").iter().all(|value| *value == "127.0.0.2"),
            "{seen:?}"
        );
    }
    let others = gateway.client().from(victim).repeat(5, &get("/")).await;
    Tally::from_iter(&others).expect(5, 0, "the peer whose address was borrowed");
}

/// Case 053.
#[tokio::test]
async fn spellings_of_one_address_share_a_counter() {
    let origin = Origin::start().await;
    let gateway = Gateway::with(&by_address(&origin, 4)).start().await;
    let mut client = gateway.client();
    let groups = [
        [
            "203.0.113.7",
            "203.0.113.7:51000",
            "  203.0.113.7  ",
            "203.0.113.7:1",
            "203.0.113.7",
        ],
        [
            "2001:db8::7",
            "[2001:db8::7]:443",
            "2001:DB8:0::7",
            "\t2001:db8::7 ",
            "[2001:db8::7]",
        ],
        [
            "203.0.113.70",
            "203.0.113.70",
            "203.0.113.70",
            "203.0.113.70",
            "203.0.113.70:80",
        ],
    ];
    for group in groups {
        assert_eq!(passed(&mut client, group).await, 4, "{group:?}");
    }
}

/// Case 053.
#[tokio::test]
async fn an_unreadable_address_leaves_the_peer() {
    let origin = Origin::start().await;
    let gateway = Gateway::with(&by_address(&origin, 4)).start().await;
    let long = "1".repeat(10_000);
    let unreadable = ["203.0.113.999", "", "-", &long, "unknown"];
    let mut client = gateway.client().from("127.0.0.2");
    assert_eq!(passed(&mut client, unreadable).await, 4, "all of them are the peer");
    assert_eq!(
        passed(&mut client, unreadable).await,
        0,
        "and the same peer the second time"
    );
    let mut other = gateway.client().from("127.0.0.3");
    assert_eq!(
        passed(&mut other, unreadable).await,
        4,
        "another peer is another client"
    );
}

/// Case 054.
#[tokio::test]
async fn an_ipv6_client_is_its_network() {
    let origin = Origin::start().await;
    let gateway = Gateway::with(&by_address(&origin, 5)).start().await;
    let mut client = gateway.client();
    let own: Vec<_> = (0..100)
        .map(|host| format!("2001:db8:1:2:{host:x}::{host:x}"))
        .collect();
    assert_eq!(passed(&mut client, own.iter().map(String::as_str)).await, 5);
    assert_eq!(passed(&mut client, ["2001:db8:1:3::1"; 5]).await, 5);
}

/// Case 054.
#[tokio::test]
async fn a_mapped_address_is_the_ipv4_address() {
    let mapped = ["::ffff:203.0.113.9"; 3];
    let plain = ["203.0.113.9"; 3];
    for listen in ["127.0.0.1:0", "\"[::]:0\""] {
        let origin = Origin::start().await;
        let gateway = Gateway::with(&by_address(&origin, 5).listen(listen)).start().await;
        let address = SocketAddr::from(([127, 0, 0, 1], gateway.address().port()));
        let mut client = Client::to(address).from("127.0.0.2");
        let all = passed(&mut client, mapped).await + passed(&mut client, plain).await;
        assert_eq!(all, 5, "listening on {listen}");
        let mut tally = Tally::default();
        for _ in 0..6 {
            tally.add(&client.get("/").await);
        }
        tally.expect(5, 1, "the peer itself, which a dual-stack socket maps");
    }
}

/// Case 055.
#[tokio::test]
async fn without_the_identifying_header_the_address_counts() {
    let origin = Origin::start().await;
    let gateway = Gateway::with(&counting_by("header:x-user-id", &origin, 3))
        .start()
        .await;
    for address in ["127.0.0.2", "127.0.0.3"] {
        let mut client = gateway.client().from(address);
        let mut tally = Tally::default();
        for request in [
            get("/"),
            get("/").header("X-User-Id", ""),
            get("/").header("X-User-Id", " \t "),
        ] {
            for response in client.repeat(5, &request).await {
                tally.add(&response);
            }
        }
        tally.expect(3, 12, &format!("absent, empty and blank from {address}"));
        let named = client.repeat(3, &get("/").header("X-User-Id", address)).await;
        Tally::from_iter(&named).expect(3, 0, "a user whose name is an address is not that address");
    }
    let before = origin.executed();
    let two = get("/").header("X-User-Id", "a").header("X-User-Id", "b");
    for response in gateway.client().repeat(5, &two).await {
        assert_eq!(response.status, 400, "a key on two lines: {response:?}");
    }
    assert_eq!(origin.executed(), before);
}

/// Case 057.
#[tokio::test]
async fn secret_and_giant_values_are_counted_but_not_kept() {
    const GIANTS: usize = 2_000;
    let (origin, redis) = (Origin::start().await, Redis::start().await);
    let gateway = Gateway::with(&counting_by("header:authorization", &origin, 3).counting_in(&redis, "t57"))
        .start()
        .await;
    let secret = "hunter2-hunter2";
    let mut client = gateway.client();
    let known = get("/").header("Authorization", &format!("Bearer {secret}"));
    Tally::from_iter(&client.repeat(4, &known).await).expect(3, 1, "a known token");
    let giant = get("/").header("Authorization", &"x".repeat(7 * 1024));
    Tally::from_iter(&client.repeat(4, &giant).await).expect(3, 1, "a value of 7 KiB");
    let tally = Crowd::of(16)
        .to(&[gateway.address()])
        .send(GIANTS, |number| {
            get("/").header("Authorization", &format!("{}{number:05}", "y".repeat(2 * 1024)))
        })
        .await;
    tally.expect(GIANTS, 0, "values that differ only at their end");

    let keys = redis.keys("").await;
    let counters = redis.counters("t57").await;
    assert_eq!(counters.len(), GIANTS + 2, "a counter each");
    let longest = keys.iter().max_by_key(|key| key.len()).unwrap();
    assert!(longest.len() <= 200, "{longest}");
    let dump = format!("{:?}", redis.dump("t57").await);
    for (place, text) in [
        ("the names of counters", keys.join("\n")),
        ("the counters", dump),
        ("the log", gateway.log()),
        ("the metrics", gateway.metrics().await),
    ] {
        assert!(!text.contains(secret), "the token stands in {place}");
    }
}

/// Case 058.
#[tokio::test]
async fn a_chain_of_trusted_proxies_leaves_nobody_without_a_name() {
    let origin = Origin::start().await;
    let settings = counting_by("ip", &origin, 3).section("client_ip: {trusted_proxies: [127.0.0.0/8, 192.0.2.0/24]}");
    let gateway = Gateway::with(&settings).start().await;
    for peer in ["127.0.0.5", "127.0.0.6"] {
        let responses = gateway.client().from(peer).repeat(5, &get("/")).await;
        Tally::from_iter(&responses).expect(3, 2, "a trusted peer without the header");
    }
    for leftmost in ["192.0.2.1", "192.0.2.2"] {
        let chain = format!("{leftmost}, 127.9.9.9");
        let mut client = gateway.client().from("127.0.0.5");
        assert_eq!(
            passed(&mut client, [chain.as_str(); 5]).await,
            3,
            "the leftmost, where all are trusted"
        );
    }
}
