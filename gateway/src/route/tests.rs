use super::*;
use http::StatusCode;
use proptest::prelude::*;

fn route(path: &str, methods: &[Method], hosts: &[&str]) -> config::Route {
    config::Route {
        name: path.into(),
        path: Template::new(path).unwrap(),
        methods: methods.to_vec(),
        hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
        target: config::Target::Respond(config::Respond {
            status: StatusCode::OK,
            body: String::new(),
            headers: Vec::new(),
        }),
        timeout: None,
        priority: 0,
    }
}

fn router(paths: &[&str]) -> Router {
    Router::new(&paths.iter().map(|path| route(path, &[], &[])).collect::<Vec<_>>())
}

/// The template that takes `path`.
fn taken<'a>(paths: &[&'a str], path: &str) -> Option<&'a str> {
    router(paths)
        .find(&Method::GET, "a.example", path)
        .map(|index| paths[index])
}

#[test]
fn the_most_specific_path_wins_whatever_the_order() {
    let mut paths = [
        "/{*rest}",
        "/v1/{*rest}",
        "/v1/{a}/{b}",
        "/v1/orders/{id}",
        "/v1/orders/new",
        "/v1/{a}/new",
        "/v1/orders/",
    ];
    for _ in 0..2 {
        for (path, expected) in [
            ("/", "/{*rest}"),
            ("/v1", "/{*rest}"),
            ("/v1/", "/v1/{*rest}"),
            ("/v1/orders", "/v1/{*rest}"),
            ("/v1/orders/", "/v1/orders/"),
            ("/v1/orders/7", "/v1/orders/{id}"),
            ("/v1/orders/new", "/v1/orders/new"),
            ("/v1/users/new", "/v1/{a}/new"),
            ("/v1/users/7", "/v1/{a}/{b}"),
            ("/v1/users/7/x", "/v1/{*rest}"),
            ("/v1/orders/7/x", "/v1/{*rest}"),
            ("/v1/users/", "/v1/{*rest}"),
            ("/v2", "/{*rest}"),
        ] {
            assert_eq!(taken(&paths, path), Some(expected), "{path}");
        }
        paths.reverse();
    }
}

#[test]
fn what_no_template_takes() {
    assert_eq!(taken(&[], "/"), None);
    assert_eq!(taken(&["/a"], "/a/"), None);
    assert_eq!(taken(&["/a/"], "/a"), None);
    assert_eq!(taken(&["/a/{*rest}"], "/a"), None);
    assert_eq!(taken(&["/a/{id}"], "/a/"), None, "a parameter is never empty");
    assert_eq!(taken(&["/a/{id}"], "/a/b/c"), None);
    assert_eq!(taken(&["/{*rest}"], "*"), None);
    assert_eq!(taken(&["/{id}"], "/"), None);
}

#[test]
fn an_encoded_slash_separates_nothing() {
    assert_eq!(taken(&["/a/{id}"], "/a/b%2Fc"), Some("/a/{id}"));
}

#[test]
fn literals_are_read_as_paths_are() {
    assert_eq!(taken(&["/caf%c3%a9/%7ex"], "/caf%C3%A9/~x"), Some("/caf%c3%a9/%7ex"));
}

#[test]
fn hosts_and_methods_fall_through_to_the_next() {
    let routes = [
        route("/{*rest}", &[], &[]),
        route("/v1/{id}", &[Method::GET], &[]),
        route("/v1/a", &[Method::POST], &["a.example", "b.example"]),
        route("/v1/a", &[], &["c.example"]),
        route("/v1/a", &[], &["b.example", "c.example"]),
        route("/v1/{*rest}", &[Method::DELETE], &["a.example"]),
    ];
    let router = Router::new(&routes);
    for (method, host, path, expected) in [
        (Method::POST, "a.example", "/v1/a", 2),
        (Method::POST, "b.example", "/v1/a", 2),
        (Method::GET, "b.example", "/v1/a", 4),
        (Method::GET, "c.example", "/v1/a", 3),
        (Method::GET, "a.example", "/v1/a", 1),
        (Method::DELETE, "a.example", "/v1/a", 5),
        (Method::DELETE, "d.example", "/v1/a", 0),
        (Method::PUT, "", "/v1/a", 0),
        (Method::HEAD, "d.example", "/v1/b", 0),
    ] {
        assert_eq!(
            router.find(&method, host, path),
            Some(expected),
            "{method} {host} {path}"
        );
    }
}

#[test]
fn equal_paths_are_equal_whatever_their_parameters_are_called() {
    assert_eq!(taken(&["/a/{x}", "/a/{y}"], "/a/1"), Some("/a/{x}"));
}

/// Whether a template takes a path, spelled out.
fn takes(template: &str, path: &str) -> bool {
    let mut path = path.split('/').skip(1);
    for segment in template.split('/').skip(1) {
        if segment == "{*rest}" {
            return path.next().is_some();
        }
        match path.next() {
            Some(own) if segment == own || (segment == "{id}" && !own.is_empty()) => {}
            _ => return false,
        }
    }
    path.next().is_none()
}

/// A name of its own for each parameter.
fn named(template: &str) -> String {
    let segments = template.split('/').enumerate();
    let named: Vec<_> = segments
        .map(|(at, segment)| segment.replace("id", &format!("id{at}")))
        .collect();
    named.join("/")
}

/// Sorts before what is less specific.
fn specificity(template: &str) -> Vec<u8> {
    let rank = |segment: &str| match segment {
        "{*rest}" => 2,
        "{id}" => 1,
        _ => 0,
    };
    template.split('/').skip(1).map(rank).collect()
}

proptest! {
    #[test]
    fn as_a_plain_search_finds_it(
        templates in prop::collection::vec(("(/(a|b|\\{id\\})){0,3}(/|/\\{\\*rest\\}|/a)", 0..3_usize), 0..12),
        path in "(/(a|b|c|)){1,4}",
        method in 0..3_usize,
    ) {
        let methods = [Method::GET, Method::POST, Method::PUT];
        let routes: Vec<_> = templates.iter().map(|(path, not)| {
            let own: Vec<_> = methods.iter().enumerate().filter(|(i, _)| i != not).map(|(_, m)| m.clone()).collect();
            route(&named(path), &own, &[])
        }).collect();
        let expected = (0..routes.len())
            .filter(|&i| templates[i].1 != method && takes(&templates[i].0, &path))
            .min_by_key(|&i| (specificity(&templates[i].0), i));
        prop_assert_eq!(Router::new(&routes).find(&methods[method], "", &path), expected);
    }
}
