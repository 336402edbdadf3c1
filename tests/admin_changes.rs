//! Calls of the admin listener that change the configuration.

use std::{fs, time::Duration};

use serde_json::json;

use crate::support::{Client, Gateway, Response, Settings, get, pause, request};

fn answering(body: &str) -> Settings {
    // The test's log is in the same folder, and would be heard.
    let settings = Settings::new().section("log: {access: false}");
    settings.route(&format!(
        "{{name: all, path: \"/{{*rest}}\", respond: {{body: {body}}}}}"
    ))
}

/// The same, with a token of the admin listener.
fn with_token(body: &str, token: &str) -> String {
    let yaml = answering(body).to_yaml();
    yaml.replace(
        "admin: 127.0.0.1:0",
        &format!("admin: {{address: 127.0.0.1:0, token: {token}}}"),
    )
}

async fn change(gateway: &Gateway, method: &str, path: &str, token: Option<&str>, body: &str) -> Response {
    let mut call = request(method, path);
    if let Some(token) = token {
        call = call.header("Authorization", &format!("Bearer {token}"));
    }
    call.body = body.as_bytes().to_vec();
    Client::to(gateway.admin()).send(&call).await
}

async fn reloads(gateway: &Gateway, outcome: &str) -> f64 {
    let labels = [("outcome", outcome)];
    gateway.metric("gateway_config_reloads_total", &labels).await
}

#[tokio::test]
async fn a_change_is_one_reload_however_many_notice_it() {
    let gateway = Gateway::with(&answering("one")).start().await;
    let answer = gateway.put_config(&answering("two").to_yaml()).await;
    assert_eq!(
        (answer.status, answer.json()),
        (200, json!({"outcome": "applied", "version": 2}))
    );
    assert_eq!(gateway.client().get("/").await.text(), "two");
    assert_eq!(
        fs::read_to_string(gateway.config_path()).unwrap(),
        answering("two").to_yaml()
    );

    fs::write(gateway.config_path(), answering("three").to_yaml()).unwrap();
    let answer = gateway.ask_admin("POST", "/api/reload").await;
    assert_eq!(answer.json(), json!({"outcome": "applied", "version": 3}));
    assert_eq!(gateway.client().get("/").await.text(), "three");
    // Long enough for the watch to have looked.
    pause(Duration::from_millis(800)).await;
    assert_eq!(
        (reloads(&gateway, "applied").await, reloads(&gateway, "unchanged").await),
        (2.0, 0.0)
    );

    let answer = gateway.ask_admin("POST", "/api/reload").await;
    assert_eq!(answer.json(), json!({"outcome": "unchanged", "version": 3}));
    assert_eq!(reloads(&gateway, "unchanged").await, 1.0);
}

#[tokio::test]
async fn what_cannot_run_is_not_written() {
    let gateway = Gateway::with(&answering("one")).start().await;
    let file = || fs::read_to_string(gateway.config_path()).unwrap();
    let before = file();

    let answer = gateway
        .put_config("listn: 127.0.0.1:0\nroutes:\n  - {path: /, upstream: none}\n")
        .await;
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    let problem = answer.json();
    assert_eq!((answer.status, &problem["status"]), (400, &json!(400)));
    assert_eq!(
        (&problem["outcome"], &problem["version"]),
        (&json!("rejected"), &json!(1))
    );
    let problems: Vec<_> = problem["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line.as_str().unwrap())
        .collect();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems[0].starts_with("gateway.yaml:1:1: listn: unknown key"),
        "{problems:?}"
    );
    assert!(
        problems[1].starts_with("gateway.yaml:3:25: routes[0].upstream:"),
        "{problems:?}"
    );

    let moved = answering("two").listen("127.0.0.2:0").section("server: {workers: 7}");
    let answer = gateway.put_config(&moved.to_yaml()).await;
    assert_eq!(
        (answer.status, &answer.json()["fields"]),
        (409, &json!(["listen", "server.workers"]))
    );
    assert_eq!(answer.json()["outcome"], "restart_required");

    let answer = gateway.put_config(&format!("{before}{}", "#".repeat(16 << 20))).await;
    assert_eq!(answer.status, 413);
    let answer = gateway.put_config("").await;
    assert_eq!(answer.status, 400);

    assert_eq!(
        (file(), gateway.client().get("/").await.text().as_str()),
        (before, "one")
    );
    let status = gateway.status().await;
    assert_eq!(status["config"]["last_reload"]["outcome"], "rejected");
    assert_eq!(status["config"]["version"], 1);
}

#[tokio::test]
async fn a_change_needs_the_token_that_runs() {
    let gateway = Gateway::with_yaml(&with_token("one", "former")).start().await;
    let next = with_token("two", "latter");
    for (method, path) in [("POST", "/api/reload"), ("PUT", "/api/config")] {
        for token in [None, Some("latter"), Some("forme"), Some("former2")] {
            let answer = change(&gateway, method, path, token, &next).await;
            assert_eq!(answer.status, 401, "{method} {token:?}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        }
    }
    assert_eq!(gateway.client().get("/").await.text(), "one");
    let answer = change(&gateway, "PUT", "/api/config", Some("former"), &next).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    // The file that was brought has another token, which counts from now on.
    assert_eq!(
        change(&gateway, "POST", "/api/reload", Some("former"), "").await.status,
        401
    );
    assert_eq!(
        change(&gateway, "POST", "/api/reload", Some("latter"), "").await.status,
        200
    );
    assert_eq!(
        gateway.ask_admin("GET", "/api/status").await.status,
        200,
        "reading needs none"
    );
    let log = gateway.log();
    assert!(
        log.contains("PUT /api/config") && log.contains("status=401") && log.contains("status=200"),
        "{log}"
    );
    assert!(
        !log.contains("former") && !log.contains("latter"),
        "a token in the log: {log}"
    );
}

#[tokio::test]
async fn a_page_of_another_origin_changes_nothing() {
    let gateway = Gateway::with(&answering("one")).start().await;
    let mut put = request("PUT", "/api/config").header("Origin", "http://gateway.test");
    put.body = answering("two").to_yaml().into_bytes();
    // Its host is that of the origin, too, as after DNS rebinding.
    let answer = Client::to(gateway.admin()).send(&put).await;
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!(gateway.client().get("/").await.text(), "one");
}

#[tokio::test]
async fn behind_links_the_file_is_replaced_and_the_links_stay() {
    let gateway = Gateway::with(&answering("one")).mounted().start().await;
    let answer = gateway.put_config(&answering("two").to_yaml()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let path = gateway.config_path();
    assert_eq!(fs::read_link(&path).unwrap().to_str(), Some("..data/gateway.yaml"));
    assert_eq!(fs::read_to_string(&path).unwrap(), answering("two").to_yaml());
    assert_eq!(gateway.client().send(&get("/")).await.text(), "two");
}

#[tokio::test]
async fn changes_that_come_together_are_each_whole() {
    let gateway = Gateway::with(&answering("v1")).start().await;
    let puts: Vec<_> = (2..40)
        .map(|number| {
            let mut call = request("PUT", "/api/config");
            call.body = answering(&format!("v{number}")).to_yaml().into_bytes();
            let mut client = Client::to(gateway.admin());
            tokio::spawn(async move { client.send(&call).await })
        })
        .collect();
    let mut versions = Vec::new();
    for put in puts {
        let answer = put.await.unwrap();
        if answer.status == 200 {
            versions.push(answer.json()["version"].as_u64().unwrap());
        } else {
            assert_eq!(
                (answer.status, answer.header("retry-after")),
                (503, Some("1")),
                "{answer:?}"
            );
        }
    }
    versions.sort_unstable();
    let expected: Vec<u64> = (2..2 + versions.len() as u64).collect();
    assert_eq!(versions, expected, "each applied once");
    let runs = gateway.client().get("/").await.text();
    assert_eq!(
        fs::read_to_string(gateway.config_path()).unwrap(),
        answering(&runs).to_yaml()
    );
}
