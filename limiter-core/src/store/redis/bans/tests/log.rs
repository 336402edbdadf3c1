//! The log of changes, and what else may stand in its place.

use super::*;

/// Runs the script with a given time: the texts that it answers.
fn run_at(server: &RedisServer, times: [u64; 2], since: u64, news: &[News]) -> Vec<String> {
    let key = |news: &News| format!("{LOG}:{}:{}", policy::escape(&news.limit), news.key);
    let mut call = vec![
        "EVAL".to_owned(),
        script(),
        (news.len() + 1).to_string(),
        LOG.to_owned(),
    ];
    call.extend(news.iter().map(key));
    let arguments = arguments(times, since, news, Timestamp::from_micros(times[0]));
    call.extend(arguments.iter().map(|value| value.as_string().unwrap()));
    server
        .command(&call.iter().map(String::as_str).collect::<Vec<_>>())
        .texts()
}

fn of(key: &str, what: What) -> News {
    News {
        limit: "l".into(),
        rule: (what != What::Lifted).then(|| Arc::clone(&rules()[0])),
        key: key.into(),
        what,
    }
}

const NOW: u64 = 29_934_000 * MINUTE;

#[test]
fn a_call_that_comes_too_late_does_nothing() {
    let server = RedisServer::start();
    let news = [of("a", What::Banned(0, Timestamp::from_micros(NOW)))];
    assert_eq!(run_at(&server, [NOW, NOW - 1], 0, &news), Vec::<String>::new());
    assert!(server.command(&["KEYS", "*"]).items().is_empty());
    assert_eq!(run_at(&server, [NOW, NOW], 0, &news).len(), 8);
}

#[test]
fn changes_are_told_page_by_page() {
    let server = RedisServer::start();
    let total = 2 * PAGE + 7;
    let news: Vec<_> = (0..total)
        .map(|number| of(&number.to_string(), What::Banned(0, Timestamp::from_micros(NOW))))
        .collect();
    // All of them at the same moment: their versions differ all the same.
    for part in news.chunks(NEWS_MAX) {
        run_at(&server, [NOW, 0], u64::MAX, part);
    }
    let (mut since, mut pages, mut keys) = (0, Vec::new(), Vec::new());
    loop {
        let told = run_at(&server, [NOW, 0], since, &[]);
        let changes = &told[4..];
        if changes.is_empty() {
            break;
        }
        pages.push(changes.len() / 4);
        keys.extend(changes.iter().step_by(4).cloned());
        since = told[2].parse().unwrap();
    }
    assert_eq!(pages, [PAGE, PAGE, 7]);
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), total);
}

#[test]
fn the_log_forgets_what_says_nothing_any_more() {
    let server = RedisServer::start();
    let ban = |key: &str, at: u64| {
        run_at(
            &server,
            [at, 0],
            u64::MAX,
            &[of(key, What::Banned(0, Timestamp::from_micros(at)))],
        )
    };
    let begun = ban("a", NOW)[0].clone();
    ban("b", NOW);
    run_at(&server, [NOW, 0], u64::MAX, &[of("a", What::Lifted)]);
    let log = || server.command(&["ZRANGE", LOG, "0", "-1"]).texts();
    let name = |key: &str| format!("{LOG}:l:{key}");
    // Others have to learn that it was lifted.
    ban("c", NOW + MINUTE / 2);
    assert_eq!(log(), [String::new(), name("b"), name("a"), name("c")]);
    let told = ban("d", NOW + 2 * MINUTE);
    assert_eq!(log(), [String::new(), name("b"), name("c"), name("d")]);
    assert_eq!(told[0], begun, "it is the same log");
    let live = server.command(&["PTTL", LOG]).int().unwrap();
    let ban_ms = i64::try_from(minutes(20).as_millis()).unwrap();
    assert!(
        (ban_ms..=ban_ms + 60_000).contains(&live),
        "{live}: as long as the rung is remembered, and a minute"
    );
}

#[test]
fn whatever_else_stands_there_is_replaced() {
    let server = RedisServer::start();
    let key = format!("{LOG}:l:a");
    let news = [News {
        limit: "l".into(),
        rule: Some(Arc::clone(&rules()[0])),
        key: "a".into(),
        what: What::Refused(9, Timestamp::from_micros(MINUTE)),
    }];
    for wrong in [
        ["SET", &key, "nonsense"],
        ["SET", &key, "1 2"],
        ["LPUSH", &key, "x"],
        ["SET", LOG, "x"],
    ] {
        server.order(&["FLUSHALL"]);
        drop(server.command(&wrong));
        let arguments = arguments([0, 0], 0, &news, Timestamp::from_micros(MINUTE));
        let arguments: Vec<_> = arguments.iter().map(|value| value.as_string().unwrap()).collect();
        let script = script();
        let mut call = vec!["EVAL", &script, "2", LOG, &key];
        call.extend(arguments.iter().map(String::as_str));
        let told = server.command(&call).texts();
        assert_eq!(told.len(), 8, "{wrong:?}: {told:?}");
        assert_eq!(told[5], minutes(10).as_micros().to_string());
    }
}
