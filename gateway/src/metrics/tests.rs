use std::time::Duration;

use super::*;

const START: Timestamp = Timestamp::from_micros(1_796_040_000_500_000);

fn gauges() -> Gauges {
    Gauges {
        store: Some(Health::Degraded),
        live_gateways: 3,
        memory_store_keys: 17,
        endpoints: vec![Endpoints {
            upstream: "orders".into(),
            available: 2,
            ejected: 1,
        }],
        concurrency_limits: vec![("orders".into(), 42)],
    }
}

/// Lines of the text that begin with `name`.
fn lines(text: &str, name: &str) -> Vec<String> {
    text.lines()
        .filter(|line| line.starts_with(name))
        .map(str::to_owned)
        .collect()
}

#[test]
fn families_exist_from_the_start_at_zero() {
    let metrics = Metrics::new(START);
    let (_route, _limit, _upstream, _sheds) = (
        metrics.route("/ping"),
        metrics.limit("user"),
        metrics.upstream("orders"),
        metrics.sheds("orders"),
    );
    let text = metrics.render(Format::Prometheus, gauges());
    for line in [
        "gateway_requests_total{route=\"/ping\",code=\"200\"} 0",
        "gateway_requests_total{route=\"none\",code=\"404\"} 0",
        "gateway_request_duration_seconds_count{route=\"/ping\"} 0",
        "gateway_request_duration_seconds_bucket{route=\"/ping\",le=\"0.001\"} 0",
        "gateway_request_duration_seconds_bucket{route=\"/ping\",le=\"0.01\"} 0",
        "gateway_request_duration_seconds_bucket{route=\"/ping\",le=\"+Inf\"} 0",
        "gateway_in_flight_requests 0",
        "gateway_waiting_requests 0",
        "gateway_wait_duration_seconds_count 0",
        "gateway_connections 0",
        "gateway_limit_decisions_total{limit=\"user\",outcome=\"allowed\"} 0",
        "gateway_limit_decisions_total{limit=\"user\",outcome=\"denied\"} 0",
        "gateway_limit_decisions_total{limit=\"user\",outcome=\"shadow_denied\"} 0",
        "gateway_limit_decisions_total{limit=\"user\",outcome=\"candidate_denied\"} 0",
        "gateway_limit_decisions_total{limit=\"user\",outcome=\"skipped\"} 0",
        "gateway_limit_decisions_total{limit=\"user\",outcome=\"fallback_allowed\"} 0",
        "gateway_limit_decisions_total{limit=\"user\",outcome=\"fallback_denied\"} 0",
        "gateway_limit_used_ratio_count{limit=\"user\"} 0",
        "gateway_store_duration_seconds_count 0",
        "gateway_store_batch_requests_count 0",
        "gateway_store_errors_total{kind=\"timeout\"} 0",
        "gateway_store_state{state=\"connected\"} 0",
        "gateway_store_state{state=\"degraded\"} 1",
        "gateway_store_state{state=\"down\"} 0",
        "gateway_store_errors_total{kind=\"evicted\"} 0",
        "gateway_live_gateways 3",
        "gateway_memory_store_keys 17",
        "gateway_config_reloads_total{outcome=\"restart_required\"} 0",
        "gateway_config_loaded_timestamp_seconds 0.0",
        "gateway_upstream_requests_total{upstream=\"orders\",code=\"200\"} 0",
        "gateway_upstream_duration_seconds_count{upstream=\"orders\"} 0",
        "gateway_upstream_endpoints{upstream=\"orders\",state=\"available\"} 2",
        "gateway_upstream_endpoints{upstream=\"orders\",state=\"ejected\"} 1",
        "gateway_upstream_shed_total{upstream=\"orders\"} 0",
        "gateway_upstream_concurrency_limit{upstream=\"orders\"} 42",
        "process_start_time_seconds 1796040000.5",
    ] {
        assert!(text.lines().any(|own| own == line), "{line} not in\n{text}");
    }
    assert_eq!(lines(&text, "gateway_build_info{version=\"").len(), 1);
}

#[test]
fn names_go_on_where_they_were() {
    let metrics = Metrics::new(START);
    metrics.route("a").record(StatusCode::OK, Duration::from_millis(2));
    metrics.route("a").record(StatusCode::OK, Duration::from_millis(2));
    assert_eq!(metrics.route("a").codes()[&200], 2);
    assert!(Arc::ptr_eq(&metrics.limit("x"), &metrics.limit("x")));
}

#[test]
fn levels_rise_and_fall() {
    let metrics = Metrics::new(START);
    let read = || {
        let text = metrics.render(Format::Prometheus, Gauges::default());
        [
            lines(&text, "gateway_in_flight_requests "),
            lines(&text, "gateway_connections "),
        ]
        .concat()
    };
    metrics.request_began();
    metrics.request_began();
    metrics.connection_opened();
    assert_eq!(read(), ["gateway_in_flight_requests 2", "gateway_connections 1"]);
    metrics.request_ended();
    metrics.request_ended();
    assert_eq!(read(), ["gateway_in_flight_requests 0", "gateway_connections 1"]);
    metrics.connection_closed();
    assert_eq!(read(), ["gateway_in_flight_requests 0", "gateway_connections 0"]);
}

#[test]
fn reloads() {
    let metrics = Metrics::new(START);
    metrics.reloaded(ReloadKind::Rejected);
    metrics.config_loaded(Timestamp::from_micros(1_500_000));
    let text = metrics.render(Format::Prometheus, Gauges::default());
    assert!(text.contains("gateway_config_reloads_total{outcome=\"rejected\"} 1\n"));
    assert!(text.contains("gateway_config_loaded_timestamp_seconds 1.5\n"));
}

#[test]
fn the_prometheus_text_is_sound() {
    let metrics = Metrics::new(START);
    let (_limit, _upstream) = (metrics.limit("a\"b\\c\nd"), metrics.upstream("orders"));
    let text = metrics.render(Format::Prometheus, gauges());
    assert!(text.contains(r#"limit="a\"b\\c\nd""#));
    assert!(!text.contains("# EOF") && text.ends_with('\n'));
    assert!(text.contains("# TYPE gateway_requests_total counter\n"));
    assert!(!text.contains("unknown"));
    let families: Vec<_> = lines(&text, "# TYPE ")
        .iter()
        .map(|line| line.split(' ').nth(2).unwrap().to_owned())
        .collect();
    for (at, family) in families.iter().enumerate() {
        assert!(!families[..at].contains(family), "{family} comes twice");
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let of = |family: &String| {
            name.strip_prefix(family.as_str())
                .is_some_and(|suffix| ["", "_bucket", "_sum", "_count"].contains(&suffix))
        };
        assert!(families.iter().any(of), "{line}");
    }
}

#[test]
fn open_metrics_by_accept() {
    let text = Metrics::new(START).render(Format::OpenMetrics, gauges());
    assert!(text.ends_with("# EOF\n"));
    assert!(text.contains("# TYPE gateway_requests counter\n"));
    assert!(text.contains("gateway_requests_total{route=\"none\",code=\"404\"} 0\n"));
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
    assert_eq!(Format::accepted(Some(prometheus)), Format::OpenMetrics);
    for other in [
        None,
        Some("*/*"),
        Some("text/plain"),
        Some(""),
        Some("application/openmetrics-textual"),
    ] {
        assert_eq!(Format::accepted(other), Format::Prometheus);
    }
}
