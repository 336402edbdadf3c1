//! `overrides` and `overrides_file`.

use std::{fs, time::Duration};

use limiter_core::{Rate, algorithm::TokenBucket};
use tempfile::TempDir;

use super::*;

const LAYER: &str = "limits:
  - name: user
    key: header:x-user-id
    algorithm: token_bucket
    rate: 5/s
";

fn limits(terms: &[Override]) -> Vec<Option<u64>> {
    let limit = |terms: &Override| match &terms.terms {
        Terms::Policy(policy) => Some(policy.algorithm().limit()),
        Terms::Unlimited | Terms::Denied => None,
    };
    terms.iter().map(limit).collect()
}

#[test]
fn what_is_not_written_is_the_layer_s() {
    let overrides = "    overrides:
      - {values: [a, b], rate: 50/s}
      - {values: c, burst: 7}
      - {values: d, unlimited: true, deny: false}
      - {values: e, deny: true}
";
    let config = parsed(&format!("{LAYER}{overrides}"));
    let own = &config.limits[0].overrides;
    // The burst that nobody wrote is that of the rate as written.
    assert_eq!(limits(own), [Some(50), Some(50), Some(7), None, None]);
    assert!(matches!(own[3].terms, Terms::Unlimited) && matches!(own[4].terms, Terms::Denied));
    let Terms::Policy(seven) = &own[2].terms else { panic!() };
    let per_second = |units| Rate {
        units,
        per: Duration::from_secs(1),
    };
    assert_eq!(*seven.algorithm(), TokenBucket::new(per_second(5), 7).unwrap().into());
    assert_eq!(seven.key_prefix(), config.limits[0].policy.key_prefix());
    let config = parsed(&format!("{LAYER}    burst: 20\n{overrides}"));
    assert_eq!(
        limits(&config.limits[0].overrides),
        [Some(20), Some(20), Some(7), None, None]
    );
}

#[test]
fn a_file_of_them_follows_and_may_be_json() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("gateway.yaml").display().to_string();
    let text = format!("{LAYER}    overrides: {{values: a, burst: 6}}\n    overrides_file: more.yaml\n");
    for (content, expected) in [
        ("[]", &[Some(6)][..]),
        (
            "\u{feff}- values: ${WHO}\n  burst: 7\n- {values: x, deny: true}\n",
            &[Some(6), Some(7), None],
        ),
        (r#"[{"values": ["b", "c"], "burst": 8}]"#, &[Some(6), Some(8), Some(8)]),
        ("{values: [b], burst: 9}", &[Some(6), Some(9)]),
    ] {
        fs::write(folder.path().join("more.yaml"), content).unwrap();
        let config = parse_with(&path, &text, &|_| Some("who".to_owned())).unwrap();
        assert_eq!(limits(&config.limits[0].overrides), expected, "{content}");
        assert_eq!(config.files.len(), 1);
        assert!(config.files[0].is_watched() && config.warnings.is_empty());
    }
}

#[test]
fn a_file_s_mistakes_are_told_with_its_name_after_those_of_the_file_that_names_it() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("gateway.yaml").display().to_string();
    let text = format!("{LAYER}    overrides_file: more.yaml\n    cots: 1\n");
    let told = |text: &str, content: &[u8]| {
        fs::write(folder.path().join("more.yaml"), content).unwrap();
        let error = parse_with(&path, text, &|_| None).unwrap_err();
        assert_eq!(error.files().len(), 1, "it is watched, so that a change of it is tried");
        let plain = |text: String| text.replace(&format!("{}/", folder.path().display()), "");
        let told = plain(error.to_string());
        assert_eq!(told.lines().count(), error.count());
        assert!(
            plain(error.render(false)).contains(&told.lines().last().unwrap().to_owned()),
            "{told}"
        );
        told
    };
    assert_eq!(
        told(&text, b"- {values: a, burst: 0}\n- values: b\n  rate: 7\n"),
        "gateway.yaml:7:5: limits[0].cots: unknown key, did you mean `cost`?
more.yaml:1:22: [0].burst: must be more than 0
more.yaml:3:9: [1].rate: 7 has no time, expected a rate such as `7/s`"
    );
    let text = format!("{LAYER}    overrides_file: more.yaml\n");
    for (content, expected) in [
        (
            &b""[..],
            "more.yaml:1:1: the file is empty, expected a mapping with `values`, and parameters of the algorithm, `unlimited: true` or `deny: true`, or a list",
        ),
        (b"- {values: [a", "more.yaml:2:1: not YAML:"),
        (b"a", "more.yaml:1:1: is a text, expected a mapping"),
        (
            b"- \xff",
            "gateway.yaml:6:21: limits[0].overrides_file: `more.yaml` is not UTF-8",
        ),
    ] {
        let told = told(&text, content);
        assert!(told.starts_with(expected), "{told}");
    }
    fs::remove_file(folder.path().join("more.yaml")).unwrap();
    let error = parse_with(&path, &text, &|_| None).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("cannot be read: No such file or directory (os error 2)")
    );
    assert_eq!(error.files().len(), 1);
    assert!(!error.files()[0].is_changed());
    fs::write(folder.path().join("more.yaml"), "[]").unwrap();
    assert!(error.files()[0].is_changed());
}

#[test]
fn values_that_come_twice_are_doubtful() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("gateway.yaml").display().to_string();
    let text =
        format!("{LAYER}    overrides_file: more.yaml\n    overrides:\n      - {{values: [a, b, a], deny: true}}\n");
    let warned = |content: &str| {
        fs::write(folder.path().join("more.yaml"), content).unwrap();
        let config = parse_with(&path, &text, &|_| None).unwrap();
        config.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let own = "8:25: limits[0].overrides[0].values[2]: `a` stands in an earlier override: the first goes";
    // That the file has it too is no mistake: what stands here is meant to go first.
    assert_eq!(warned("- {values: a, burst: 3}"), [own]);
    assert_eq!(
        warned("- {values: [x, y, y], burst: 3}\n- {values: [x, x], burst: 3}\n"),
        [
            "6:21: limits[0].overrides_file: `y` and 2 more stand in it a second time: the first goes",
            own,
        ]
    );
}

#[test]
fn thousands_of_them_are_read_in_a_moment() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("gateway.yaml").display().to_string();
    let items: String = (0..10_000)
        .map(|i| format!("- {{values: user-{i}, burst: {}}}\n", 1 + i % 100))
        .collect();
    fs::write(folder.path().join("more.yaml"), items).unwrap();
    let config = parse_with(&path, &format!("{LAYER}    overrides_file: more.yaml\n"), &|_| None).unwrap();
    let overrides = &config.limits[0].overrides;
    assert_eq!(overrides.len(), 10_000);
    let policies = overrides.iter().map(|own| match &own.terms {
        Terms::Policy(policy) => Arc::as_ptr(policy),
        other => panic!("{other:?}"),
    });
    assert_eq!(
        policies.collect::<std::collections::HashSet<_>>().len(),
        100,
        "equal ones are shared"
    );
}
