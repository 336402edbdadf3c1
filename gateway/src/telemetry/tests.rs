use std::{
    io::Write,
    sync::{Arc, Condvar, Mutex},
};

use serde_json::Value;
use tracing::{Level, debug, info, warn};

use super::*;
use crate::config::{Log, LogFormat};

const SOON: Duration = Duration::from_secs(10);

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Written {
    fn lines(&self) -> Vec<String> {
        String::from_utf8(self.0.lock().unwrap().clone())
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

fn log(format: LogFormat, access: bool, level: Level) -> Log {
    Log { format, access, level }
}

/// What `events` leave in the log.
fn logged(config: &Log, rust_log: Option<&str>, events: impl FnOnce(&Telemetry)) -> Vec<String> {
    let written = Written::default();
    let (telemetry, subscriber) = build(config, rust_log.map(str::to_owned), Sink::start(written.clone()));
    tracing::subscriber::with_default(subscriber, || events(&telemetry));
    telemetry.sink.flush(SOON);
    written.lines()
}

fn one_of_each() {
    warn!("a warning");
    info!("a note");
    debug!("a detail");
    info!(target: ACCESS, status = 200, "GET /");
}

/// How many of the four lines of [`one_of_each`] are there: all but access lines, and those.
fn counts(config: &Log, rust_log: Option<&str>) -> (usize, usize) {
    let lines = logged(config, rust_log, |_| one_of_each());
    let access = lines.iter().filter(|line| line.contains("GET /")).count();
    (lines.len() - access, access)
}

#[test]
fn level_and_access_are_apart() {
    assert_eq!(counts(&log(LogFormat::Text, true, Level::INFO), None), (2, 1));
    assert_eq!(counts(&log(LogFormat::Text, false, Level::DEBUG), None), (3, 0));
    assert_eq!(counts(&log(LogFormat::Text, true, Level::ERROR), None), (0, 1));
}

#[test]
fn rust_log_takes_the_place_of_the_level() {
    assert_eq!(counts(&log(LogFormat::Text, true, Level::ERROR), Some("debug")), (3, 1));
    assert_eq!(
        counts(&log(LogFormat::Text, false, Level::INFO), Some("gateway=warn")),
        (1, 0)
    );
    assert_eq!(
        counts(&log(LogFormat::Text, true, Level::INFO), Some("not a directive=?,warn")),
        (1, 1)
    );
}

#[test]
fn json_is_an_object_a_line() {
    let lines = logged(&log(LogFormat::Json, true, Level::INFO), None, |_| {
        info!(target: ACCESS, status = 429, limit = "a\"b", "refused");
    });
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(
        (&line["target"], &line["level"], &line["message"]),
        (&"access".into(), &"INFO".into(), &"refused".into())
    );
    assert_eq!((&line["status"], &line["limit"]), (&429.into(), &"a\"b".into()));
    assert!(line["timestamp"].as_str().unwrap().ends_with('Z'));
}

#[test]
fn access_lines_look_like_the_others() {
    let client: std::net::IpAddr = "203.0.113.7".parse().unwrap();
    let lines = |target_access: bool, format| {
        let events = |_: &Telemetry| {
            // Of these, the target is all that differs.
            if target_access {
                info!(target: ACCESS, path = "/a", status = 200_u16, bytes = -1, route = None::<&str>, ok = true, %client, "done");
            } else {
                info!(target: "axxess", path = "/a", status = 200_u16, bytes = -1, route = None::<&str>, ok = true, %client, "done");
            }
        };
        let lines = logged(&log(format, true, Level::INFO), None, events);
        lines[0].replace("axxess", ACCESS)
    };
    let after_the_time = |line: String| {
        line.split_once('Z')
            .unwrap()
            .1
            .replace("client=203.0.113.7", "client=\"203.0.113.7\"")
    };
    assert_eq!(
        after_the_time(lines(true, LogFormat::Text)),
        after_the_time(lines(false, LogFormat::Text))
    );
    let parsed = |line: String| {
        let mut line: Value = serde_json::from_str(&line).unwrap();
        assert!(line["timestamp"].take().is_string());
        line
    };
    assert_eq!(
        parsed(lines(true, LogFormat::Json)),
        parsed(lines(false, LogFormat::Json))
    );
}

#[test]
fn no_value_ends_an_access_line_or_a_field() {
    let value = "a\"b\\c\nd\u{1b}[0m\u{7f}\u{e9}";
    let lines = logged(&log(LogFormat::Json, true, Level::INFO), None, |_| {
        info!(target: ACCESS, path = value, shown = %value, took = 1.23456, never = f64::NAN);
    });
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    let parsed: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&parsed["path"], &parsed["shown"]), (&value.into(), &value.into()));
    assert_eq!((&parsed["took"], parsed.get("never")), (&1.235.into(), None));
    let lines = logged(
        &log(LogFormat::Text, true, Level::INFO),
        None,
        |_| info!(target: ACCESS, path = value, "{value}"),
    );
    assert!(
        lines.len() == 1 && !lines[0].contains(|c: char| c.is_control()),
        "{lines:?}"
    );
}

#[test]
fn a_reload_changes_level_and_format() {
    let lines = logged(&log(LogFormat::Text, true, Level::WARN), None, |telemetry| {
        info!("unseen");
        telemetry.reload(&log(LogFormat::Json, true, Level::INFO));
        info!("seen");
        telemetry.reload(&log(LogFormat::Text, true, Level::ERROR));
        warn!("unseen");
    });
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(line.starts_with('{') && line.contains("\"seen\""), "{line}");
}

/// A reader that does not read until it is told to.
#[derive(Clone, Default)]
struct Stuck(Arc<(Mutex<bool>, Condvar)>, Written);

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (free, told) = &*self.0;
        let free = told.wait_while(free.lock().unwrap(), |free| !*free).unwrap();
        drop(free);
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_reader_that_does_not_read_stops_nobody_and_takes_no_more_than_its_share() {
    let stuck = Stuck::default();
    let sink = Sink::start(stuck.clone());
    let line = [b'x'; 1023];
    for _ in 0..20_000 {
        let mut writer = sink.make_writer();
        writer.write_all(&[&line[..], b"\n"].concat()).unwrap();
    }
    sink.flush(Duration::from_millis(1));
    *stuck.0.0.lock().unwrap() = true;
    stuck.0.1.notify_all();
    sink.flush(SOON);
    let kept = stuck.1.lines().len();
    assert!((8 * 1024..=17 * 1024).contains(&kept), "{kept}");
    assert!(
        stuck.1.lines().iter().all(|line| line.len() == 1023),
        "lines are lost whole"
    );
}

#[test]
fn lines_of_all_threads_arrive_whole() {
    let written = Written::default();
    let sink = Sink::start(written.clone());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let sink = &sink;
            scope.spawn(move || {
                for line in 0..500 {
                    sink.make_writer()
                        .write_all(format!("{thread} {line}\n").as_bytes())
                        .unwrap();
                }
            });
        }
    });
    sink.flush(SOON);
    let lines = written.lines();
    assert_eq!(lines.len(), 2_000);
    for thread in 0..4 {
        let own: Vec<_> = lines
            .iter()
            .filter_map(|line| line.strip_prefix(&format!("{thread} ")))
            .collect();
        assert!(
            own.iter().enumerate().all(|(at, line)| line.parse() == Ok(at)),
            "out of order"
        );
    }
}
