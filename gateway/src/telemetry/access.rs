//! Access lines, of which there is one a request: written straight into a buffer of the worker's own, since the way of
//! tracing-subscriber costs as much as a fourth of the whole request. They look like its lines.

use std::{net::IpAddr, time::Duration};

use limiter_core::Timestamp;

use super::{ACCESS, Sink};
use crate::{client_addr, config::LogFormat};

/// A worker hands its lines on when it has so many bytes of them, or when it is told to.
const GATHER_BYTES: usize = 16 * 1024;

/// The access lines of one worker. Dropping it hands on what is left.
#[derive(Debug, Default)]
pub(crate) struct AccessLog {
    sink: Option<Sink>,
    lines: String,
    count: u64,
    /// The second that `stamp` tells.
    second: u64,
    /// `2026-11-30T22:31:39`.
    stamp: String,
}

impl AccessLog {
    /// Lines that go to `sink`.
    pub(super) fn new(sink: Sink) -> Self {
        let mut log = Self::default();
        log.sink = Some(sink);
        log
    }

    /// Writes one line, whose fields are what `write` puts there.
    pub(crate) fn write(&mut self, format: LogFormat, at: Timestamp, write: impl FnOnce(&mut Line<'_>)) {
        self.stamp(at);
        let is_json = format == LogFormat::Json;
        let to = &mut self.lines;
        to.push_str(if is_json { r#"{"timestamp":""# } else { "" });
        to.push_str(&self.stamp);
        to.push('.');
        push_padded(to, at.as_micros() % 1_000_000, 6);
        to.push_str(if is_json {
            r#"Z","level":"INFO","target":""#
        } else {
            "Z  INFO "
        });
        to.push_str(ACCESS);
        to.push_str(if is_json { "\"" } else { ":" });
        write(&mut Line { to, is_json });
        to.push_str(if is_json { "}\n" } else { "\n" });
        self.count += 1;
        if self.lines.len() >= GATHER_BYTES {
            self.hand_on();
        }
    }

    /// Hands on what is there.
    pub(crate) fn hand_on(&mut self) {
        if let Some(sink) = &self.sink
            && self.count > 0
        {
            sink.push(self.lines.as_bytes(), self.count);
        }
        self.lines.clear();
        self.count = 0;
    }

    fn stamp(&mut self, at: Timestamp) {
        if at.as_secs() == self.second && !self.stamp.is_empty() {
            return;
        }
        self.second = at.as_secs();
        let seconds = i64::try_from(self.second).unwrap_or(i64::MAX);
        let stamp = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
        self.stamp = stamp.to_string();
        self.stamp.truncate("2026-11-30T22:31:39".len());
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.hand_on();
    }
}

/// What comes before a field's value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    pub(crate) json: &'static str,
    pub(crate) text: &'static str,
}

/// The name of a field: `name!("status")`. It stands in our own code, and needs no escapes.
macro_rules! name {
    ($name:literal) => {
        $crate::telemetry::Name {
            json: concat!(",\"", $name, "\":"),
            text: concat!(" ", $name, "="),
        }
    };
}
pub(crate) use name;

/// A line in the making.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    to: &'a mut String,
    is_json: bool,
}

impl Line<'_> {
    fn name(&mut self, name: Name) {
        self.to.push_str(if self.is_json { name.json } else { name.text });
    }

    /// A text, in quotes; `None` writes nothing.
    pub(crate) fn text<'t>(&mut self, name: Name, text: impl Into<Option<&'t str>>) -> &mut Self {
        if let Some(text) = text.into() {
            self.name(name);
            self.to.push('"');
            push_escaped(self.to, text);
            self.to.push('"');
        }
        self
    }

    /// A word, which has nothing to escape, in quotes.
    pub(crate) fn word(&mut self, name: Name, word: &str) -> &mut Self {
        self.name(name);
        self.to.push('"');
        self.to.push_str(word);
        self.to.push('"');
        self
    }

    /// A whole number.
    pub(crate) fn number(&mut self, name: Name, number: impl itoa::Integer) -> &mut Self {
        self.name(name);
        self.to.push_str(itoa::Buffer::new().format(number));
        self
    }

    /// Milliseconds, with three digits more.
    pub(crate) fn millis(&mut self, name: Name, took: Duration) -> &mut Self {
        self.name(name);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.to.push_str(itoa::Buffer::new().format(micros / 1000));
        self.to.push('.');
        push_padded(self.to, micros % 1000, 3);
        self
    }

    /// An address.
    pub(crate) fn address(&mut self, name: Name, address: IpAddr) -> &mut Self {
        self.name(name);
        self.to.push('"');
        client_addr::write_address(address, self.to);
        self.to.push('"');
        self
    }

    /// That something is so; nothing where it is not.
    pub(crate) fn flag(&mut self, name: Name, is_so: bool) -> &mut Self {
        if is_so {
            self.name(name);
            self.to.push_str("true");
        }
        self
    }
}

/// With zeros before it, to `digits` digits.
fn push_padded(to: &mut String, number: u64, digits: usize) {
    let mut buffer = itoa::Buffer::new();
    let text = buffer.format(number);
    to.push_str("000000".get(..digits.saturating_sub(text.len())).unwrap_or_default());
    to.push_str(text);
}

/// Escapes what would end a string or a line (RFC 8259, section 7).
fn push_escaped(to: &mut String, mut text: &str) {
    let is_special = |byte: u8| byte < b' ' || matches!(byte, b'"' | b'\\' | 0x7f);
    // The whole at once first: without a way out, it is looked at many bytes at a time.
    if !text.bytes().fold(false, |special, byte| special | is_special(byte)) {
        return to.push_str(text);
    }
    while let Some(at) = text.bytes().position(is_special) {
        // A special byte is ASCII: it begins and ends a character.
        let (before, rest) = text.split_at(at);
        let (character, after) = rest.split_at(1);
        to.push_str(before);
        match character.as_bytes() {
            [byte @ (b'"' | b'\\')] => to.extend(['\\', char::from(*byte)]),
            bytes => {
                let byte = bytes.first().copied().unwrap_or_default();
                to.push_str("\\u00");
                to.extend([byte >> 4, byte & 0xf].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0')));
            }
        }
        text = after;
    }
    to.push_str(text);
}
