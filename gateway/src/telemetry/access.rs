//! Writes access lines, of which there is one a request: everything else goes the way of tracing-subscriber, which takes
//! four times as long.

use std::fmt::{self, Debug, Write};

use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    registry::LookupSpan,
};

use super::ACCESS;
use crate::config::LogFormat;

/// Writes access lines itself and leaves the other events to `others`. Both look alike.
pub(super) struct AccessLines<F> {
    pub(super) format: LogFormat,
    pub(super) others: F,
}

impl<S, N, F> FormatEvent<S, N> for AccessLines<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        if event.metadata().target() != ACCESS {
            return self.others.format_event(context, to, event);
        }
        let is_json = self.format == LogFormat::Json;
        to.write_str(if is_json { r#"{"timestamp":""# } else { "" })?;
        SystemTime.format_time(&mut to)?;
        to.write_str(if is_json {
            r#"","level":"INFO","target":"access""#
        } else {
            "  INFO access:"
        })?;
        let mut fields = Fields {
            to: &mut to,
            is_json,
            result: Ok(()),
        };
        event.record(&mut fields);
        fields.result?;
        to.write_str(if is_json { "}\n" } else { "\n" })
    }
}

/// Writes `,"name":value` or ` name=value` for each field.
struct Fields<'a, W> {
    to: &'a mut W,
    is_json: bool,
    result: fmt::Result,
}

impl<W: Write> Fields<'_, W> {
    fn write(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        self.result = self.result.and_then(|()| {
            self.name(field)?;
            self.to.write_fmt(value)
        });
    }

    /// A text, in quotes but for the message of a line of text.
    fn write_text(&mut self, field: &Field, write: impl FnOnce(&mut Escaped<'_, W>) -> fmt::Result) {
        let is_message = field.name() == "message";
        self.result = self.result.and_then(|()| {
            if is_message && !self.is_json {
                self.to.write_char(' ')?;
                return write(&mut Escaped(self.to));
            }
            self.name(field)?;
            self.to.write_char('"')?;
            write(&mut Escaped(self.to))?;
            self.to.write_char('"')
        });
    }

    /// Names stand in our own code, and need no escapes.
    fn name(&mut self, field: &Field) -> fmt::Result {
        let (before, after) = if self.is_json { (",\"", "\":") } else { (" ", "=") };
        self.to.write_str(before)?;
        self.to.write_str(field.name())?;
        self.to.write_str(after)
    }
}

impl<W: Write> Visit for Fields<'_, W> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.write_text(field, |to| write!(to, "{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.write_text(field, |to| to.write_str(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.write(field, format_args!("{value}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.write(field, format_args!("{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.write(field, format_args!("{value}"));
    }

    /// With three digits: thousandths of what is reported are noise.
    fn record_f64(&mut self, field: &Field, value: f64) {
        if value.is_finite() {
            self.write(field, format_args!("{value:.3}"));
        }
    }
}

/// Escapes what would end a string or a line (RFC 8259 §7).
struct Escaped<'a, W>(&'a mut W);

impl<W: Write> Write for Escaped<'_, W> {
    fn write_str(&mut self, mut text: &str) -> fmt::Result {
        let special = |byte: u8| byte < b' ' || matches!(byte, b'"' | b'\\' | 0x7f);
        while let Some(at) = text.bytes().position(special) {
            // A special byte is ASCII: it begins and ends a character.
            let (before, rest) = text.split_at(at);
            let (character, after) = rest.split_at(1);
            self.0.write_str(before)?;
            match character {
                "\"" | "\\" => write!(self.0, "\\{character}")?,
                _ => write!(
                    self.0,
                    "\\u{:04x}",
                    character.as_bytes().first().copied().unwrap_or_default()
                )?,
            }
            text = after;
        }
        self.0.write_str(text)
    }
}
