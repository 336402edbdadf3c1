//! Text with variables → the body of a refusal.
//!
//! It is read once, when the configuration is: a refusal only joins its pieces.

use std::fmt::Write as _;

use bytes::Bytes;

/// What a variable takes of the body, about.
const BYTES_A_VALUE: usize = 24;

/// A text with variables.
///
/// `{{NAME}}` is a value of the refusal, escaped as the media type asks for; `{{{{` is two braces. All else stands for
/// itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    form: Form,
    pieces: Box<[Piece]>,
    /// Of the pieces that are text.
    text_bytes: usize,
}

/// Why a text is no template; what is wrong, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTemplate {
    /// `{{` without `}}`.
    #[error("`{{{{` is not closed, expected `}}}}` behind a name, or `{{{{{{{{` for two braces")]
    Open,
    /// A variable that there is not.
    #[error("there is no variable `{0}`")]
    Unknown(String),
    /// JSON by its media type, but not with values in the place of its variables.
    #[error("with values it is not JSON ({0}), expected JSON")]
    NotJson(String),
}

/// What a refusal has to say.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// The name of the layer that refuses.
    pub layer: &'a str,
    /// Its quota in units.
    pub limit: u64,
    /// The time of its quota in whole seconds.
    pub window: u64,
    /// Whole units that are left of it.
    pub remaining: u64,
    /// As the field of this name; `None` where waiting cannot help.
    pub retry_after: Option<u64>,
    /// The sentence that a problem document has.
    pub detail: &'a str,
    /// Of the answer.
    pub status: u16,
    /// The request's id.
    pub request_id: &'a str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Bytes),
    Value {
        of: Variable,
        /// Whether it stands in a string of JSON.
        in_string: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variable {
    Layer,
    Limit,
    Window,
    Remaining,
    RetryAfter,
    Detail,
    Status,
    RequestId,
}

const VARIABLES: [(&str, Variable); 8] = [
    ("layer", Variable::Layer),
    ("limit", Variable::Limit),
    ("window", Variable::Window),
    ("remaining", Variable::Remaining),
    ("retry_after", Variable::RetryAfter),
    ("detail", Variable::Detail),
    ("status", Variable::Status),
    ("request_id", Variable::RequestId),
];

/// How values are escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    /// HTML and XML.
    Markup,
    /// As they are.
    Plain,
}

impl Template {
    /// The names that variables have.
    pub const NAMES: [&'static str; VARIABLES.len()] = {
        let mut names = [""; VARIABLES.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = VARIABLES[at].0;
            at += 1;
        }
        names
    };

    /// Reads the template of a body of this media type.
    ///
    /// # Errors
    /// [`BadTemplate`]
    pub fn new(media_type: &str, text: &str) -> Result<Self, BadTemplate> {
        let form = Form::of(media_type);
        let mut pieces = Pieces::default();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("{{") {
            pieces.text(before);
            if let Some(behind) = behind.strip_prefix("{{") {
                pieces.text("{{");
                rest = behind;
                continue;
            }
            let (name, behind) = behind.split_once("}}").ok_or(BadTemplate::Open)?;
            pieces.value(name.trim())?;
            rest = behind;
        }
        pieces.text(rest);
        if form == Form::Json && pieces.splits_escape {
            return Err(BadTemplate::NotJson("a variable within an escape".into()));
        }
        let template = pieces.finish(form);
        template.check()?;
        Ok(template)
    }

    /// What is JSON with these values is JSON with all: numbers are numbers, texts are strings or within one, and none of
    /// these numbers can be a part of a longer one where another could not.
    fn check(&self) -> Result<(), BadTemplate> {
        if self.form != Form::Json {
            return Ok(());
        }
        [Some(24), None].into_iter().try_for_each(|retry_after| {
            let body = self.render(&Values {
                layer: "user",
                limit: 100,
                window: 60,
                remaining: 0,
                retry_after,
                detail: "limit \"user\"",
                status: 429,
                request_id: "0",
            });
            let read = serde_json::from_slice::<serde::de::IgnoredAny>(&body);
            read.map(drop).map_err(|error| BadTemplate::NotJson(error.to_string()))
        })
    }

    /// The body. Without variables nothing is written anew.
    #[must_use]
    pub fn render(&self, values: &Values<'_>) -> Bytes {
        match &*self.pieces {
            [] => Bytes::new(),
            [Piece::Text(text)] => text.clone(),
            pieces => {
                let mut body = String::with_capacity(self.text_bytes + pieces.len() * BYTES_A_VALUE);
                for piece in pieces {
                    match piece {
                        // It is a part of a text.
                        Piece::Text(text) => body.push_str(std::str::from_utf8(text).unwrap_or_default()),
                        Piece::Value { of, in_string } => self.form.write(values.get(*of), *in_string, &mut body),
                    }
                }
                body.into()
            }
        }
    }
}

/// A template in the making.
#[derive(Debug, Default)]
struct Pieces {
    pieces: Vec<Piece>,
    /// Text that is not a piece yet.
    text: String,
    text_bytes: usize,
    quotes: Quotes,
    /// Whether a variable stands within an escape of JSON.
    splits_escape: bool,
}

impl Pieces {
    fn text(&mut self, text: &str) {
        self.quotes.pass(text);
        self.text.push_str(text);
    }

    fn value(&mut self, name: &str) -> Result<(), BadTemplate> {
        let variable = VARIABLES.iter().find(|(known, _)| *known == name);
        let Some((_, of)) = variable else {
            return Err(BadTemplate::Unknown(name.chars().take(80).collect()));
        };
        self.end_text();
        self.splits_escape |= self.quotes.escape != Escape::No;
        self.pieces.push(Piece::Value {
            of: *of,
            in_string: self.quotes.is_open,
        });
        Ok(())
    }

    fn end_text(&mut self) {
        if !self.text.is_empty() {
            self.text_bytes += self.text.len();
            self.pieces.push(Piece::Text(std::mem::take(&mut self.text).into()));
        }
    }

    fn finish(mut self, form: Form) -> Template {
        self.end_text();
        Template {
            form,
            pieces: self.pieces.into(),
            text_bytes: self.text_bytes,
        }
    }
}

/// Whether a place in JSON is within a string.
#[derive(Debug, Default)]
struct Quotes {
    is_open: bool,
    escape: Escape,
}

/// Whether a place in a string of JSON is within an escape (RFC 8259, section 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Escape {
    #[default]
    No,
    /// Behind the backslash.
    Begun,
    /// With so many hex digits to come.
    Digits(u8),
}

impl Quotes {
    fn pass(&mut self, text: &str) {
        for byte in text.bytes() {
            self.escape = match (self.escape, byte) {
                (Escape::Begun, b'u') => Escape::Digits(4),
                (Escape::Digits(left @ 2..), _) => Escape::Digits(left - 1),
                (Escape::No, b'\\') if self.is_open => Escape::Begun,
                _ => {
                    self.is_open ^= byte == b'"' && self.escape == Escape::No;
                    Escape::No
                }
            };
        }
    }
}

/// A value, before it is written.
#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    Text(&'a str),
    Number(u64),
    Nothing,
}

impl<'a> Values<'a> {
    fn get(&self, variable: Variable) -> Value<'a> {
        match variable {
            Variable::Layer => Value::Text(self.layer),
            Variable::Limit => Value::Number(self.limit),
            Variable::Window => Value::Number(self.window),
            Variable::Remaining => Value::Number(self.remaining),
            Variable::RetryAfter => self.retry_after.map_or(Value::Nothing, Value::Number),
            Variable::Detail => Value::Text(self.detail),
            Variable::Status => Value::Number(self.status.into()),
            Variable::RequestId => Value::Text(self.request_id),
        }
    }
}

impl Form {
    fn of(media_type: &str) -> Self {
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        let essence = essence.to_ascii_lowercase();
        match essence.as_str() {
            "application/json" => Self::Json,
            json if json.ends_with("+json") => Self::Json,
            "text/html" | "text/xml" | "application/xml" => Self::Markup,
            xml if xml.ends_with("+xml") => Self::Markup,
            _ => Self::Plain,
        }
    }

    fn write(self, value: Value<'_>, in_string: bool, to: &mut String) {
        match (self, value) {
            // Writing to a String does not fail.
            (_, Value::Number(number)) => write!(to, "{number}").unwrap_or_default(),
            (Self::Json, Value::Nothing) if !in_string => to.push_str("null"),
            (_, Value::Nothing) => {}
            (Self::Json, Value::Text(text)) => {
                let quoted = serde_json::Value::from(text).to_string();
                to.push_str(if in_string {
                    &quoted[1..quoted.len() - 1]
                } else {
                    &quoted
                });
            }
            (Self::Markup, Value::Text(text)) => write_markup(text, to),
            (Self::Plain, Value::Text(text)) => to.push_str(text),
        }
    }
}

/// Text that is text in HTML and XML, in elements and in quoted attributes.
fn write_markup(text: &str, to: &mut String) {
    for character in text.chars() {
        match character {
            '&' => to.push_str("&amp;"),
            '<' => to.push_str("&lt;"),
            '>' => to.push_str("&gt;"),
            '"' => to.push_str("&quot;"),
            '\'' => to.push_str("&#39;"),
            other => to.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALUES: Values<'_> = Values {
        layer: "user",
        limit: 100,
        window: 60,
        remaining: 3,
        retry_after: Some(24),
        detail: "limit \"user\" of 100 <per> 60 s & it's used up",
        status: 429,
        request_id: "r-1",
    };

    fn rendered(media_type: &str, text: &str, values: &Values<'_>) -> String {
        let template = Template::new(media_type, text).unwrap_or_else(|error| panic!("{text}: {error}"));
        String::from_utf8(template.render(values).to_vec()).unwrap()
    }

    fn refused(media_type: &str, text: &str) -> String {
        Template::new(media_type, text).expect_err(text).to_string()
    }

    #[test]
    fn every_variable_has_its_value() {
        let text: Vec<_> = Template::NAMES
            .iter()
            .map(|name| format!("{name}={{{{{name}}}}}"))
            .collect();
        assert_eq!(
            rendered("text/plain", &text.join(" "), &VALUES),
            "layer=user limit=100 window=60 remaining=3 retry_after=24 \
             detail=limit \"user\" of 100 <per> 60 s & it's used up status=429 request_id=r-1"
        );
    }

    #[test]
    fn text_stands_for_itself() {
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("a {b} }} { {", "a {b} }} { {"),
            ("{{{{layer}}", "{{layer}}"),
            ("{{ layer }}{{limit}}", "user100"),
            ("{{limit}}}", "100}"),
            ("ä{{limit}}ö", "ä100ö"),
        ] {
            assert_eq!(rendered("text/plain", text, &VALUES), expected, "{text}");
        }
    }

    #[test]
    fn json_gets_json() {
        let text = r#"{"a":{{layer}},"b":"{{layer}} \" {{limit}} {{detail}}","c":{{limit}},"d":{{retry_after}},"e":"{{retry_after}}"}"#;
        for (media_type, retry_after) in [
            ("application/json", Some(7)),
            ("Application/Problem+JSON; charset=utf-8", None),
        ] {
            let values = Values { retry_after, ..VALUES };
            let body: serde_json::Value = serde_json::from_str(&rendered(media_type, text, &values)).unwrap();
            assert_eq!(body["a"], "user");
            assert_eq!(body["b"], format!("user \" 100 {}", VALUES.detail));
            assert_eq!(body["c"], 100);
            assert_eq!(body["d"].as_u64(), retry_after);
            assert_eq!(body["e"], retry_after.map_or(String::new(), |secs| secs.to_string()));
        }
    }

    #[test]
    fn markup_gets_text() {
        for media_type in ["text/html; charset=utf-8", "application/xhtml+xml", "application/xml"] {
            assert_eq!(
                rendered(media_type, "<p title='{{detail}}'>", &VALUES),
                "<p title='limit &quot;user&quot; of 100 &lt;per&gt; 60 s &amp; it&#39;s used up'>"
            );
        }
    }

    #[test]
    fn what_is_no_template_is_refused() {
        assert_eq!(refused("text/plain", "{{name}}"), "there is no variable `name`");
        assert_eq!(refused("text/plain", "a {{}}"), "there is no variable ``");
        let open = "`{{` is not closed, expected `}}` behind a name, or `{{{{` for two braces";
        assert_eq!(refused("text/plain", "a {{limit} b"), open);
        for text in [
            "",
            "{{layer}",
            "{\"a\": {{limit}},}",
            "{\"a\": x{{layer}}}",
            "{\"a\": \"{{layer}}}",
            "{\"a\": 1{{retry_after}}}",
            r#"{"a": {{remaining}}{{limit}}}"#,
            r#""\u00{{limit}}""#,
            r#""\{{status}}""#,
        ] {
            assert!(Template::new("application/json", text).is_err(), "{text}");
            assert_eq!(Template::new("text/plain", text).is_err(), text == "{{layer}", "{text}");
        }
    }

    /// Pieces of which some make JSON together.
    fn fragment() -> impl Strategy<Value = String> {
        let name = prop::sample::select(Template::NAMES.to_vec()).prop_map(|name| format!("{{{{{name}}}}}"));
        let text = prop::sample::select(vec![
            "\"", "\"", "\\", "\\\"", "\\u", "00", "-", ".", "[", "]", ",", " ", "x", "{{{{", "null",
        ]);
        prop_oneof![3 => name, 4 => text.prop_map(str::to_owned)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn what_is_taken_as_json_makes_json(
            fragments in prop::collection::vec(fragment(), 1..7),
            limit in 1..1u64 << 53,
            remaining in 0..200u64,
            retry_after in prop::option::of(1..100_000u64),
            layer in "[A-Za-z0-9_.-]{1,8}",
            detail in any::<String>(),
        ) {
            let text = fragments.concat();
            let values = Values { layer: &layer, limit, remaining, retry_after, detail: &detail, ..VALUES };
            for text in [format!("\"{text}\""), format!("[{text}]"), text] {
                if let Ok(template) = Template::new("application/json", &text) {
                    let body = template.render(&values);
                    let read = serde_json::from_slice::<serde_json::Value>(&body);
                    prop_assert!(read.is_ok(), "{text} gave {body:?}");
                }
            }
        }
    }

    #[test]
    fn without_variables_nothing_is_copied() {
        let template = Template::new("text/plain", "slow down").unwrap();
        assert_eq!(template.render(&VALUES).as_ptr(), template.render(&VALUES).as_ptr());
    }
}
