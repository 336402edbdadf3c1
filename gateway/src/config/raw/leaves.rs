//! Single values, each with its form.

use super::{
    declare::leaf,
    describe::{Definitions, Facts, Form},
    field::{Leaf, Scalar, Shape},
};

leaf! {
    /// Any text.
    Text: "a text" { "text", Form::Text };
    /// A name of the file's own.
    Name: "a name of letters, digits, `_`, `.` and `-`" { "name", Form::Pattern("^[A-Za-z0-9_.-]{1,64}$") };
    /// `true` or `false`.
    Flag: "`true` or `false`" { "`true` or `false`", Form::Flag };
    /// A whole number.
    Whole: "a whole number" { "number", Form::Whole };
    /// A whole number, also below 0.
    Rank: "a whole number such as `-1` or `10`" { "number", Form::Signed };
    /// A time.
    Span: "a duration such as `250ms`, `10s` or `1h`"
        { "duration", Form::Pattern("^(0|[1-9][0-9]*)(ms|s|m|h|d|w)$") };
    /// How long a window is.
    Length: "a duration such as `10s` or `1d`, or `1mo`"
        { "duration or `1mo`", Form::Pattern("^(1mo|(0|[1-9][0-9]*)(ms|s|m|h|d|w))$") };
    /// So many in a time.
    Rate: "a rate such as `100/s` or `3/10s`"
        { "rate", Form::Pattern("^[1-9][0-9]*/([1-9][0-9]*)?(ms|s|m|h|d|w)$") };
    /// Bytes.
    Size: "a size such as `64KiB`" { "size", Form::Size };
    /// IP address and port.
    Address: "an address such as `127.0.0.1:8080`" { "address", Form::Pattern(":[0-9]{1,5}$") };
    /// `http://host:port`.
    Url: "a URL such as `http://127.0.0.1:8000`" { "URL", Form::Pattern("^[Hh][Tt][Tt][Pp]://[^/]+/?$") };
    /// `redis://host:port/db`, and the like.
    RedisUrl: "a URL such as `redis://127.0.0.1:6379/0`" { "URL", Form::Pattern("^rediss?(-cluster|-sentinel)?://.") };
    /// Where keys are.
    KeysUrl: "a URL such as `https://id.example.com/jwks.json`"
        { "URL", Form::Pattern("^[Hh][Tt][Tt][Pp][Ss]?://[^/]+(/.*)?$") };
    /// Where a file is.
    FileName: "the path of a file" { "path of a file", Form::Pattern(".") };
    /// An address range.
    Cidr: "an address range such as `10.0.0.0/8`" { "address range", Form::Pattern("^[0-9A-Fa-f.:]+(/[0-9]{1,3})?$") };
    /// A path, a path template or a glob.
    PathText: "a path such as `/v1/orders`" { "path", Form::Pattern("^(/|[*][*]$)") };
    /// An HTTP method.
    Verb: "an HTTP method such as `GET`" { "method", Form::Pattern("^[^a-z ]+$") };
    /// One of a few words.
    Word: "a word" { "word", Form::Text };
    /// The type of a body.
    MediaType: "a media type such as `text/html; charset=utf-8`" { "media type", Form::Pattern("^[^/ ]+/[^/ ]+") };
    /// Who serves a page, as browsers say it.
    Origin: "`*`, or an origin such as `https://app.example.org`" {
        "origin", Form::Pattern("^([*]|[a-z][a-z0-9+.-]*://[^/]+)$")
    };
    /// Units that a request takes, or the header that says it.
    CostText: "a whole number or `header:NAME`" { "number or `header:NAME`", Form::WholeOr("^header:.+$") };
    /// Units, or a part of what passes at once.
    LotText: "a whole number, or a percentage such as `1%`" {
        "number or percentage", Form::WholeOr("^(100|[1-9][0-9]?)%$")
    };
    /// A part of a key.
    KeyText: "a key such as `ip` or `header:x-user-id`" {
        "key",
        Form::Pattern("^(global|ip|path|route|method|host|(header|cookie|query|jwt):.+)$")
    };
}

/// The largest number that the limiter can work with.
pub(super) const MAX: u64 = (1 << 53) - 1;
