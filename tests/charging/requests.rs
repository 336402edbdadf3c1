//! Costs that the request says.

use super::*;

const TEN: &str = "{name: t, key: global, algorithm: fixed_window, limit: 10, window: 1d, align: first_request";

fn costing(cost: &str) -> Request {
    get("/").header("x-cost", cost)
}

/// Case 021, and the short form.
#[tokio::test]
async fn a_header_says_what_a_request_costs() {
    let settings = Settings::answering().limit(&format!("{TEN}, cost: header:x-cost}}"));
    for (store, gateways, _redis) in everywhere(&settings).await {
        let (first, last) = (&gateways[0], &gateways[gateways.len() - 1]);
        let left = |answer: Response| {
            assert!(answer.passed(), "{store}: {answer:?}");
            answer.remaining()
        };
        assert_eq!(left(first.client().send(&costing("3")).await), 7, "{store}");
        assert_eq!(left(last.client().get("/").await), 6, "{store}: without it, 1");
        assert_eq!(
            left(first.client().send(&costing("0")).await),
            6,
            "{store}: 0 takes nothing"
        );
        for (wrong, why) in [
            ("-5", "is negative"),
            ("2.5", "is not a whole number"),
            ("1e3", "is not a whole number"),
            ("", "is not a whole number"),
            ("many", "is not a whole number"),
        ] {
            let answer = first.client().send(&costing(wrong)).await;
            assert_eq!(answer.status, 400, "{store}, {wrong}: {answer:?}");
            let detail = answer.json()["detail"].as_str().unwrap().to_owned();
            assert!(
                detail.contains("\"x-cost\"") && detail.contains("\"t\"") && detail.contains(why),
                "{detail}"
            );
        }
        let twice = first.client().send(&costing("1").header("x-cost", "1")).await;
        assert_eq!(twice.status, 400, "{twice:?}");
        assert_eq!(
            left(last.client().send(&costing("0")).await),
            6,
            "{store}: none took anything"
        );
        // Case 020: what never fits.
        for never in ["11", "9007199254740993", "99999999999999999999999999"] {
            let answer = first.client().send(&costing(never)).await;
            assert_eq!((answer.status, answer.retry_after()), (429, None), "{store}, {never}");
            let detail = answer.json()["detail"].as_str().unwrap().to_owned();
            assert_eq!(detail, "this request costs more than limit \"t\" of 10 ever has");
        }
        // What does not fit now.
        let answer = last.client().send(&costing("7")).await;
        assert!(answer.denied() && answer.retry_after().is_some(), "{store}: {answer:?}");
        assert_eq!(left(first.client().send(&costing("6")).await), 0, "{store}");
        assert!(
            last.client().send(&costing("0")).await.passed(),
            "{store}: 0 always fits"
        );
        assert!(last.client().get("/").await.denied(), "{store}");
    }
}

#[tokio::test]
async fn a_cost_has_a_default_and_a_bound() {
    let settings = Settings::answering()
        .limit(&format!("{TEN}, cost: {{header: x-cost, default: 4, max: 5}}}}"))
        .limit("{name: wide, key: global, algorithm: token_bucket, rate: 50/1d}");
    for (store, gateways, _redis) in everywhere(&settings).await {
        let mut client = gateways[0].client();
        assert_eq!(client.get("/").await.ratelimit("r"), Some(6), "{store}");
        let answer = client.send(&costing("6")).await;
        assert_eq!(answer.status, 400, "{store}: {answer:?}");
        assert!(
            answer.json()["detail"].as_str().unwrap().contains("is more than 5"),
            "{answer:?}"
        );
        assert_eq!(client.send(&costing("5")).await.ratelimit("r"), Some(1), "{store}");
        let answer = client.send(&costing("2")).await;
        assert_eq!(answer.json()["violated-policies"], json!(["t"]), "{store}");
    }
}

#[tokio::test]
async fn a_shadow_takes_no_offence_at_a_cost() {
    let layer = format!("{TEN}, mode: shadow, cost: {{header: x-cost, max: 5}}}}");
    let gateway = Gateway::with(&Settings::answering().limit(&layer)).start().await;
    for cost in ["6", "-1", "many"] {
        assert!(gateway.client().send(&costing(cost)).await.passed(), "{cost}");
    }
    let skipped = [("limit", "t"), ("outcome", "skipped")];
    assert_eq!(gateway.metric("gateway_limit_decisions_total", &skipped).await, 3.0);
}
