use std::{
    io::Write,
    sync::{Arc, Condvar, Mutex},
};

use limiter_core::Timestamp;
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

fn log(format: LogFormat, level: Level) -> Log {
    let access = true;
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
}

/// How many of the three lines of [`one_of_each`] are there.
fn count(config: &Log, rust_log: Option<&str>) -> usize {
    logged(config, rust_log, |_| one_of_each()).len()
}

#[test]
fn the_level_decides() {
    assert_eq!(count(&log(LogFormat::Text, Level::INFO), None), 2);
    assert_eq!(count(&log(LogFormat::Text, Level::DEBUG), None), 3);
    assert_eq!(count(&log(LogFormat::Text, Level::ERROR), None), 0);
}

#[test]
fn rust_log_takes_the_place_of_the_level() {
    assert_eq!(count(&log(LogFormat::Text, Level::ERROR), Some("debug")), 3);
    assert_eq!(count(&log(LogFormat::Text, Level::INFO), Some("gateway=warn")), 1);
    let odd = Some("not a directive=?,warn");
    assert_eq!(count(&log(LogFormat::Text, Level::INFO), odd), 1);
}

const AT: Timestamp = Timestamp::from_micros(1_764_541_899_000_042);

/// The one access line whose fields `write` writes.
fn access_line(format: LogFormat, write: impl FnOnce(&mut access::Line<'_>)) -> String {
    let lines = logged(&log(format, Level::ERROR), None, |telemetry| {
        telemetry.access_log().write(format, AT, write);
    });
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    line.clone()
}

#[test]
fn access_lines_are_there_whatever_the_level() {
    let line = access_line(LogFormat::Json, |line| {
        line.number(name!("status"), 429_u16).text(name!("limit"), "a\"b");
    });
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["target"], &line["level"]), (&"access".into(), &"INFO".into()));
    assert_eq!((&line["status"], &line["limit"]), (&429.into(), &"a\"b".into()));
    assert_eq!(line["timestamp"], "2025-11-30T22:31:39.000042Z");
}

#[test]
fn access_lines_look_like_the_others() {
    let client: std::net::IpAddr = "203.0.113.7".parse().unwrap();
    for format in [LogFormat::Text, LogFormat::Json] {
        let others = logged(&log(format, Level::INFO), None, |_| {
            info!(target: "access", path = "/a", status = 200_u16, route = None::<&str>, ok = true, client = "203.0.113.7", took = 1.25);
        });
        let ours = access_line(format, |line| {
            line.text(name!("path"), "/a")
                .number(name!("status"), 200_u16)
                .text(name!("route"), None);
            line.flag(name!("ok"), true)
                .flag(name!("never"), false)
                .address(name!("client"), client);
            line.millis(name!("took"), Duration::from_micros(1_250));
        });
        let after_the_time = |line: &str| line.split_once('Z').unwrap().1.replace("1.250", "1.25");
        match format {
            LogFormat::Text => assert_eq!(after_the_time(&ours), after_the_time(&others[0])),
            LogFormat::Json => {
                let parsed = |line: &str| {
                    let mut line: Value = serde_json::from_str(line).unwrap();
                    assert!(line["timestamp"].take().is_string());
                    line
                };
                assert_eq!(parsed(&ours), parsed(&others[0]));
            }
        }
    }
}

#[test]
fn no_value_ends_an_access_line_or_a_field() {
    let value = "a\"b\\c\nd\u{1b}[0m\u{7f}\u{e9}";
    let line = access_line(LogFormat::Json, |line| {
        line.text(name!("path"), value);
    });
    let parsed: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(parsed["path"], value);
    let line = access_line(LogFormat::Text, |line| {
        line.text(name!("path"), value);
    });
    assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
}

#[test]
fn a_second_is_told_once_it_is_over() {
    let lines = logged(&log(LogFormat::Text, Level::ERROR), None, |telemetry| {
        let mut access = telemetry.access_log();
        for micros in [999_999, 1_000_000, 1_000_001, 61_000_000] {
            access.write(LogFormat::Text, Timestamp::from_micros(micros), |_| ());
        }
    });
    let expected = [
        "00:00:00.999999",
        "00:00:01.000000",
        "00:00:01.000001",
        "00:01:01.000000",
    ];
    let expected = expected.map(|time| format!("1970-01-01T{time}Z  INFO access:"));
    assert_eq!(lines, expected);
}

#[test]
fn a_reload_changes_level_and_format() {
    let lines = logged(&log(LogFormat::Text, Level::WARN), None, |telemetry| {
        info!("unseen");
        telemetry.reload(&log(LogFormat::Json, Level::INFO));
        info!("seen");
        telemetry.reload(&log(LogFormat::Text, Level::ERROR));
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
