use super::*;

fn map(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    headers
}

fn lines(headers: &HeaderMap) -> Vec<String> {
    let mut lines: Vec<_> = headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    lines.sort();
    lines
}

fn edited(lines: &[(&str, &str)], peer_is_trusted: bool) -> HeaderMap {
    edited_by(lines, peer_is_trusted, None)
}

/// `layer`: the one that refused the request, if it is degraded.
fn edited_by(lines: &[(&str, &str)], peer_is_trusted: bool, layer: Option<&'static str>) -> HeaderMap {
    let mut headers = map(lines);
    let edit = Edit {
        host: Host::Named(HeaderValue::from_static("api.example")),
        forwarded_for: &HeaderValue::from_static("192.0.2.1"),
        peer_is_trusted,
        request_id: HeaderValue::from_static("id"),
        degraded_by: layer.map(HeaderValue::from_static),
    };
    let fields = HeadFields::of(&headers);
    request(&mut headers, fields, edit);
    headers
}

/// What every request gets.
const OURS: [&str; 5] = [
    "host: api.example",
    "x-forwarded-for: 192.0.2.1",
    "x-forwarded-host: api.example",
    "x-forwarded-proto: http",
    "x-request-id: id",
];

fn with_ours(more: &[&str]) -> Vec<String> {
    let mut all: Vec<_> = OURS.iter().chain(more).map(|&line| line.to_owned()).collect();
    all.sort();
    all
}

#[test]
fn what_concerns_one_connection_ends_here() {
    let headers = edited(
        &[
            ("connection", "keep-alive, X-Hop"),
            ("connection", "x-OTHER"),
            ("x-hop", "1"),
            ("x-other", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "secret"),
            ("te", "trailers;q=0.5, deflate"),
            ("trailer", "x-t"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAA"),
            ("expect", "100-continue"),
            ("x-end", "keep"),
        ],
        false,
    );
    assert_eq!(lines(&headers), with_ours(&["te: trailers", "x-end: keep"]));
}

#[test]
fn connection_cannot_name_the_host_away() {
    assert_eq!(
        lines(&edited(
            &[("connection", "host, x-forwarded-for, , x-request-id")],
            false
        )),
        OURS
    );
}

#[test]
fn te_without_trailers_goes() {
    assert_eq!(lines(&edited(&[("te", "deflate, xtrailers")], false)), OURS);
}

#[test]
fn trailers_of_a_chunked_body_stay_announced() {
    let headers = edited(&[("transfer-encoding", "chunked"), ("trailer", "x-t")], false);
    assert_eq!(lines(&headers), with_ours(&["trailer: x-t"]));
}

#[test]
fn nobody_is_believed_about_whom_he_forwards_for() {
    let claims = [
        ("host", "other.example"),
        ("x-forwarded-for", "203.0.113.9"),
        ("x-forwarded-for", "203.0.113.10"),
        ("x-forwarded-host", "bank.example"),
        ("x-forwarded-proto", "https"),
        ("x-real-ip", "203.0.113.9"),
        ("forwarded", "for=203.0.113.9"),
        ("x-request-id", "theirs"),
    ];
    assert_eq!(lines(&edited(&claims, false)), OURS);
}

#[test]
fn a_trusted_peer_is() {
    let claims = [
        ("x-forwarded-for", "203.0.113.9"),
        ("x-forwarded-for", "203.0.113.10"),
        ("x-forwarded-host", "api.example:443"),
        ("x-forwarded-proto", "https"),
        ("forwarded", "for=203.0.113.9"),
    ];
    let expected = [
        "forwarded: for=203.0.113.9",
        "host: api.example",
        "x-forwarded-for: 203.0.113.9, 203.0.113.10, 192.0.2.1",
        "x-forwarded-host: api.example:443",
        "x-forwarded-proto: https",
        "x-request-id: id",
    ];
    assert_eq!(lines(&edited(&claims, true)), expected);
    assert_eq!(lines(&edited(&[], true)), OURS);
}

#[test]
fn cookie_crumbs_become_one_line_and_other_lines_stay_apart() {
    let headers = edited(
        &[("cookie", "a=1"), ("x-a", "1"), ("cookie", "b=2"), ("x-a", "2")],
        false,
    );
    assert_eq!(lines(&headers), with_ours(&["cookie: a=1; b=2", "x-a: 1", "x-a: 2"]));
}

#[test]
fn values_outside_ascii_pass_byte_for_byte() {
    let mut headers = HeaderMap::new();
    for bytes in [b"caf\xc3\xa9".as_slice(), b"\xff\x80"] {
        headers.append(&COOKIE, HeaderValue::from_bytes(bytes).unwrap());
        headers.append("x-other", HeaderValue::from_bytes(bytes).unwrap());
    }
    let edit = Edit {
        host: Host::Named(HeaderValue::from_static("a")),
        forwarded_for: &HeaderValue::from_static("192.0.2.1"),
        peer_is_trusted: true,
        request_id: HeaderValue::from_static("id"),
        degraded_by: None,
    };
    let fields = HeadFields::of(&headers);
    request(&mut headers, fields, edit);
    assert_eq!(headers[&COOKIE].as_bytes(), b"caf\xc3\xa9; \xff\x80");
    let others: Vec<_> = headers.get_all("x-other").iter().map(HeaderValue::as_bytes).collect();
    assert_eq!(others, [b"caf\xc3\xa9".as_slice(), b"\xff\x80"]);
}

#[test]
fn only_trusted_peers_say_that_a_request_is_degraded() {
    let theirs = [("x-gateway-degraded", "theirs"), ("connection", "x-gateway-degraded")];
    let marks = |lines: &[_], peer_is_trusted, layer| {
        let headers = edited_by(lines, peer_is_trusted, layer);
        let marks = headers.get_all(&X_GATEWAY_DEGRADED).iter();
        marks.map(|mark| mark.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(marks(&theirs[..1], false, None).is_empty());
    assert_eq!(marks(&theirs[..1], true, None), ["theirs"]);
    assert_eq!(marks(&theirs[..1], false, Some("ours")), ["ours"]);
    assert_eq!(marks(&theirs[..1], true, Some("ours")), ["theirs", "ours"]);
    // It cannot be taken out as a field of the connection.
    assert_eq!(marks(&theirs, true, Some("ours")), ["ours"]);
}

#[test]
fn an_answer_keeps_what_is_its_own() {
    let mut headers = map(&[
        ("connection", "close, x-foo"),
        ("x-foo", "1"),
        ("keep-alive", "timeout=5"),
        ("transfer-encoding", "chunked"),
        ("content-length", "5"),
        ("trailer", "x-t"),
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
    ]);
    response(&mut headers);
    assert_eq!(lines(&headers), ["set-cookie: a=1", "set-cookie: b=2", "trailer: x-t"]);
}

#[test]
fn an_upstream_gets_path_and_query_only() {
    let cases = [
        ("/a?b", None, "/a?b"),
        ("/a//b?c=%zz", Some("/a/b"), "/a/b?c=%zz"),
        ("http://h.example/a?b", None, "/a?b"),
        ("http://h.example", None, "/"),
        ("http://h.example?q", None, "/?q"),
        ("http://h.example/x/../a?", Some("/a"), "/a?"),
        ("*", None, "*"),
    ];
    for (written, normalised, expected) in cases {
        let mut uri: Uri = written.parse().unwrap();
        target(&mut uri, normalised.map(str::to_owned));
        assert_eq!(uri.to_string(), expected, "{written}");
    }
}
