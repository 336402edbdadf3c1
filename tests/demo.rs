//! A newcomer's first command, and what it tells them to try.

use std::{fs, path::Path};

use crate::support::{DEADLINE, Gateway, Response, Tally, get, wait_for};

/// The shipped file, on free ports.
fn shipped() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gateway.yaml");
    let text = fs::read_to_string(path).unwrap();
    let moved = text
        .replace("127.0.0.1:8080", "127.0.0.1:0")
        .replace("127.0.0.1:9090", "127.0.0.1:0");
    assert_ne!(moved, text, "the shipped file has other ports now");
    moved
}

#[tokio::test]
async fn the_demo_shows_a_200_a_429_and_a_changed_file() {
    let gateway = Gateway::with_yaml(&shipped()).command("demo").start().await;
    let mut client = gateway.client();
    let alice = client.send(&get("/v1/hello").header("x-user-id", "alice")).await;
    assert_eq!(alice.status, 200, "{alice:?}");
    assert!(
        alice.header("ratelimit").is_some() && alice.header("ratelimit-policy").is_some(),
        "{alice:?}"
    );
    let bob = get("/v1/hello").header("x-user-id", "bob");
    let answers = client.repeat(7, &bob).await;
    answers.iter().collect::<Tally>().expect(5, 2, "seven of bob");
    assert!(answers[6].retry_after().is_some());
    assert_eq!(answers[6].json()["violated-policies"][0], "user");
    // What the demo prints is what can be done.
    let printed = gateway.log();
    assert!(
        printed.contains(&format!("curl -i http://{}/v1/hello", gateway.address())),
        "{printed}"
    );
    let change = "sed -i.orig 's/limit: 5 /limit: 50 /'";
    assert!(printed.contains(change), "the demo names another change: {printed}");
    let changed = shipped().replace("limit: 5 ", "limit: 50 ");
    assert_ne!(changed, shipped(), "that change changes nothing");
    fs::write(gateway.config_path(), changed).unwrap();
    // That bob passes proves nothing: in ten seconds he would have passed anyway.
    wait_for(DEADLINE, "the new limit", || async {
        gateway.client().send(&bob).await.header("x-ratelimit-limit") == Some("50")
    })
    .await;
    assert!(client.send(&bob).await.passed());
    let pong: Response = client.get("/ping").await;
    assert_eq!((pong.status, pong.text().as_str()), (200, "pong\n"));
}
