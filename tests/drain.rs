//! SIGTERM: what is in flight ends, nothing new begins, and the exit status says that all is well.

use std::{sync::Arc, time::Duration};

use rustix::process::Signal;
use tokio::{net::TcpStream, sync::Notify, time::Instant};

use crate::support::{DEADLINE, Gateway, Origin, Raw, Settings, Step, get, wait_for};

#[tokio::test]
async fn what_is_in_flight_ends_and_nothing_new_begins() {
    let origin = Origin::start().await;
    let go_on = Arc::new(Notify::new());
    let signal = Arc::clone(&go_on);
    origin.answers(move |seen| match seen.target.as_str() {
        "/slow" => vec![Step::Wait(Arc::clone(&signal)), Step::ok("done")],
        _ => vec![Step::ok("fine")],
    });
    let mut gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    let mut idle = Raw::connect(gateway.address()).await;
    idle.send(get("/").to_bytes()).await.unwrap();
    assert!(idle.response_to("GET").await.unwrap().passed());
    let mut slow = Raw::connect(gateway.address()).await;
    slow.send(get("/slow").to_bytes()).await.unwrap();
    origin.has_executed(2).await;
    gateway.signal(Signal::TERM);
    assert!(idle.closes_within(DEADLINE).await, "an idle connection stays open");
    wait_for(DEADLINE, "new connections to be refused", || async {
        TcpStream::connect(gateway.address()).await.is_err()
    })
    .await;
    assert!(gateway.runs(), "gone with a request in flight");
    go_on.notify_one();
    let answer = slow.response_to("GET").await.unwrap();
    assert_eq!((answer.text().as_str(), answer.complete), ("done", true));
    assert_eq!(gateway.exit().await.code(), Some(0));
}

#[tokio::test]
async fn a_request_that_never_ends_does_not_hold_the_end_up_for_longer_than_the_drain() {
    let origin = Origin::start().await;
    origin.answers(|_| vec![Step::Stall]);
    let mut gateway = Gateway::with(&Settings::forwarding_to(&origin).section("server: {drain: 500ms}"))
        .start()
        .await;
    let mut stuck = Raw::connect(gateway.address()).await;
    stuck.send(get("/").to_bytes()).await.unwrap();
    origin.has_executed(1).await;
    let asked = Instant::now();
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit().await.code(), Some(0));
    let took = asked.elapsed();
    assert!(
        took >= Duration::from_millis(450) && took < Duration::from_secs(5),
        "it took {took:?}"
    );
}
