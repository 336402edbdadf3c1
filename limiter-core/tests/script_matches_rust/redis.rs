//! Just enough of a Redis client: bytes in, bytes out, on one connection, to a server of its own.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
};

use limiter_core::test_util::RedisServer;

/// A server, and a connection to it.
pub(crate) struct Redis {
    _server: RedisServer,
    stream: BufReader<TcpStream>,
}

/// A reply, as the protocol has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Nil,
    Int(i64),
    Bytes(Vec<u8>),
    Error(String),
    List(Vec<Value>),
}

impl Redis {
    pub(crate) fn start() -> Self {
        let server = RedisServer::start();
        let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            _server: server,
            stream: BufReader::new(stream),
        }
    }

    /// Sends all commands at once, and reads all replies.
    pub(crate) fn pipeline(&mut self, commands: &[Vec<Vec<u8>>]) -> Vec<Value> {
        let mut bytes = Vec::new();
        for command in commands {
            write!(bytes, "*{}\r\n", command.len()).unwrap();
            for argument in command {
                write!(bytes, "${}\r\n", argument.len()).unwrap();
                bytes.extend_from_slice(argument);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        self.stream.get_mut().write_all(&bytes).unwrap();
        commands.iter().map(|_| self.read()).collect()
    }

    pub(crate) fn command(&mut self, arguments: &[&[u8]]) -> Value {
        let command = arguments.iter().map(|argument| argument.to_vec()).collect();
        self.pipeline(&[command]).remove(0)
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let (kind, rest) = line.trim_end().split_at(1);
        match kind {
            "+" => Value::Bytes(rest.as_bytes().to_vec()),
            "-" => Value::Error(rest.to_owned()),
            ":" => Value::Int(rest.parse().unwrap()),
            "$" if rest == "-1" => Value::Nil,
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.stream.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                Value::Bytes(bytes)
            }
            "*" if rest == "-1" => Value::Nil,
            "*" => Value::List((0..rest.parse::<usize>().unwrap()).map(|_| self.read()).collect()),
            _ => panic!("not a reply: {line:?}"),
        }
    }
}
