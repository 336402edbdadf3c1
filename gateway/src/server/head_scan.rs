//! Looks over a request's head as it came in, for what hyper settles in silence.
//!
//! hyper lets a transfer coding win over a length, and takes the same length twice for one. Both are safe, but both mean
//! that somebody along the way reads another message than we do, and RFC 9112 (section 6.3) lets us refuse it. The
//! parsed headers no longer show it, so this counts the lines that matter, across reads, up to the empty line. Only of a
//! head that says how long its body is: most do not, and all that they cost is a copy of their bytes.

/// As much of a head is kept to be looked over; of a longer one, the beginning is looked over meanwhile.
const KEPT: usize = 4 * 1024;

/// A head, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct HeadScan {
    kept: Vec<u8>,
    lines: Lines,
}

/// Which line is being read, and what was found.
#[derive(Clone, Copy, Debug, Default)]
struct Lines {
    /// The first bytes of the current line.
    line: [u8; LONGEST],
    len: usize,
    /// Whether the request line was seen: empty lines before it are skipped (RFC 9112, section 2.2).
    has_begun: bool,
    lengths: u8,
    codings: u8,
    is_over: bool,
}

const CONTENT_LENGTH: &[u8] = b"content-length:";
const TRANSFER_ENCODING: &[u8] = b"transfer-encoding:";
const LONGEST: usize = TRANSFER_ENCODING.len();

impl HeadScan {
    /// More of the head; what follows its empty line is ignored.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if self.kept.len() + bytes.len() <= KEPT {
            self.kept.extend_from_slice(bytes);
        } else {
            self.look_over();
            self.lines.feed(bytes);
        }
    }

    /// Whether the head says more than once how long the body is.
    pub(super) fn is_ambiguous(&mut self) -> bool {
        self.look_over();
        self.lines.lengths > 1 || (self.lines.lengths == 1 && self.lines.codings > 0)
    }

    /// Another head is to come.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
        self.lines = Lines::default();
    }

    fn look_over(&mut self) {
        self.lines.feed(&self.kept);
        self.kept.clear();
    }
}

impl Lines {
    fn feed(&mut self, mut bytes: &[u8]) {
        while !self.is_over && !bytes.is_empty() {
            let end = memchr::memchr(b'\n', bytes);
            let (line, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            self.append(line);
            let Some(rest) = rest.get(1..) else { return };
            self.end_line();
            bytes = rest;
        }
    }

    fn append(&mut self, line: &[u8]) {
        let room = &mut self.line[self.len..];
        let taken = line.len().min(room.len());
        room[..taken].copy_from_slice(&line[..taken]);
        self.len += taken;
    }

    fn end_line(&mut self) {
        let line = &self.line[..self.len];
        match line.first().map(u8::to_ascii_lowercase) {
            None | Some(b'\r') => self.is_over = self.has_begun,
            Some(b'c') if starts_with(line, CONTENT_LENGTH) => self.lengths = self.lengths.saturating_add(1),
            Some(b't') if starts_with(line, TRANSFER_ENCODING) => self.codings = self.codings.saturating_add(1),
            Some(_) => {}
        }
        self.has_begun |= !matches!(line, [] | [b'\r']);
        self.len = 0;
    }
}

fn starts_with(line: &[u8], name: &[u8]) -> bool {
    line.get(..name.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ambiguous(head: &str, step: usize) -> bool {
        let mut scan = HeadScan::default();
        head.as_bytes().chunks(step).for_each(|part| scan.feed(part));
        scan.is_ambiguous()
    }

    #[test]
    fn a_body_has_one_length_or_one_coding() {
        let cases = [
            ("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", true),
            ("transfer-encoding: chunked\r\nX: y\r\nCONTENT-LENGTH: 3\r\n\r\n", true),
            ("Content-Length: 3\r\nContent-Length: 3\r\n\r\n", true),
            (
                "Content-Length: 3\r\nX-Content-Length: 3\r\nTransfer-Encoding-X: y\r\n\r\n",
                false,
            ),
            ("Transfer-Encoding: chunked\r\n\r\nContent-Length: 3\r\n\r\n", false),
            ("Content-Length: 3\n\nTransfer-Encoding: chunked\n", false),
            ("\r\n", false),
        ];
        for (headers, expected) in cases {
            let head = format!("POST / HTTP/1.1\r\n{headers}");
            for (step, lead) in [(1, ""), (2, "\r\n"), (7, "\n\n"), (1024, "\r\n")] {
                let head = format!("{lead}{head}");
                assert_eq!(is_ambiguous(&head, step), expected, "{head:?} in steps of {step}");
                let long = head.replace("HTTP/1.1\r\n", &format!("HTTP/1.1\r\nx: {}\r\n", "y".repeat(KEPT)));
                assert_eq!(is_ambiguous(&long, step), expected, "a long one in steps of {step}");
            }
        }
    }
}
