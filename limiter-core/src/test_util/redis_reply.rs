//! Just enough of the protocol to tell a server what to do, and to see what it holds.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{Ipv4Addr, TcpStream},
    time::Duration,
};

/// A user that every server of these guards knows, so that a test can talk to it whatever password it sets.
pub(super) const GUARD_USER: [&str; 6] = ["guard", "on", "nopass", "~*", "&*", "+@all"];

/// How long a reply may take: a server that is frozen must not hang the test for ever.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// A reply, as the protocol has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisReply {
    /// No value.
    Nil,
    /// A whole number.
    Int(i64),
    /// A status or a value. One that is not UTF-8 has a character for each of its bytes.
    Text(String),
    /// An error.
    Error(String),
    /// Several.
    List(Vec<RedisReply>),
}

impl RedisReply {
    /// Whether it is the status `OK`.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.text() == Some("OK")
    }

    /// The number, where it is one.
    #[must_use]
    pub fn int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The text, where it is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The text.
    ///
    /// # Panics
    /// Where it is none.
    #[must_use]
    pub fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            other => panic!("no text: {other:?}"),
        }
    }

    /// The texts of a list.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        self.items().iter().filter_map(Self::text).map(str::to_owned).collect()
    }

    /// The items of a list; none of anything else.
    #[must_use]
    pub fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }
}

/// Sends one command to the server at this port of 127.0.0.1, over a connection of its own. It may block for 10 s.
///
/// # Errors
/// Where the server cannot be reached, or its reply cannot be read. An error that the server replies is no error here.
pub fn redis_command(port: u16, args: &[&str]) -> io::Result<RedisReply> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    let mut request = String::new();
    for args in [&["AUTH", GUARD_USER[0], "any"], args] {
        request.push_str(&format!("*{}\r\n", args.len()));
        for arg in args {
            request.push_str(&format!("${}\r\n{arg}\r\n", arg.len()));
        }
    }
    stream.write_all(request.as_bytes())?;
    let mut replies = BufReader::new(stream);
    // A server that another program started does not know our user, and needs none.
    read_reply(&mut replies)?;
    read_reply(&mut replies)
}

fn read_reply(from: &mut impl BufRead) -> io::Result<RedisReply> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let line = line.trim_end();
    let (kind, rest) = line.split_at_checked(1).ok_or(io::ErrorKind::UnexpectedEof)?;
    let number = || rest.parse::<i64>().map_err(io::Error::other);
    Ok(match kind {
        "+" => RedisReply::Text(rest.to_owned()),
        "-" => RedisReply::Error(rest.to_owned()),
        ":" => RedisReply::Int(number()?),
        "$" => match usize::try_from(number()?) {
            Err(_) => RedisReply::Nil,
            Ok(length) => {
                let mut bytes = vec![0; length + 2];
                from.read_exact(&mut bytes)?;
                bytes.truncate(length);
                let as_chars =
                    |error: std::string::FromUtf8Error| error.into_bytes().into_iter().map(char::from).collect();
                RedisReply::Text(String::from_utf8(bytes).unwrap_or_else(as_chars))
            }
        },
        "*" => match usize::try_from(number()?) {
            Err(_) => RedisReply::Nil,
            Ok(length) => RedisReply::List((0..length).map(|_| read_reply(from)).collect::<io::Result<_>>()?),
        },
        _ => return Err(io::Error::other(format!("unknown reply: {line}"))),
    })
}
