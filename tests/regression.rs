//! What was wrong once, and must not be again.

use crate::support::{Gateway, Origin, Settings, Step, get};

// 067: the length was passed on beside the coding, and the client's connection was cut before a byte of the answer.
#[tokio::test]
async fn an_answer_with_a_length_and_a_coding_is_framed_once() {
    let origin = Origin::start().await;
    origin.answers(|_| {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
        vec![Step::text(text), Step::Close]
    });
    let gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    let answer = gateway.client().get("/").await;
    let lengths = answer.header_lines("content-length").len() + answer.header_lines("transfer-encoding").len();
    assert!(answer.status == 502 || lengths == 1, "{answer:?}");
}

// 062: a name that is complete, with its last dot, was another host than the same name without.
#[tokio::test]
async fn the_last_dot_of_a_host_makes_it_no_other() {
    let settings = Settings::new()
        .route("{path: /, hosts: a.example, respond: {body: a}}")
        .route("{path: /, hosts: b.example., respond: {body: b}}");
    let gateway = Gateway::with(&settings).start().await;
    for (host, body) in [
        ("a.example.", "a"),
        ("a.example.:81", "a"),
        ("B.example", "b"),
        ("b.example.", "b"),
    ] {
        assert_eq!(
            gateway.client().send(&get("/").header("Host", host)).await.text(),
            body,
            "{host}"
        );
    }
}
