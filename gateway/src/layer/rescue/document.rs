//! The text of a problem document, and of its sentences. Written piece by piece: a refusal has to cost next to nothing.

use limiter_core::{Policy, Wait, decision::ceil_secs};
use memchr::memchr2;

/// Text in the making.
#[derive(Debug, Default)]
pub(super) struct Text(String);

impl Text {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    /// As it is.
    pub(super) fn put(&mut self, text: &str) -> &mut Self {
        self.0.push_str(text);
        self
    }

    /// In decimal digits.
    pub(super) fn put_number(&mut self, number: impl itoa::Integer) -> &mut Self {
        self.put(itoa::Buffer::new().format(number))
    }

    /// As a JSON string (RFC 8259, section 7).
    pub(super) fn put_json(&mut self, text: &str) -> &mut Self {
        let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
        // All of it, for that takes a few instructions for 16 bytes.
        if text.bytes().fold(true, |plain, byte| plain & is_plain(byte)) {
            return self.put("\"").put(text).put("\"");
        }
        if text.bytes().any(|byte| byte < b' ') {
            return self.put(&serde_json::Value::from(text).to_string());
        }
        self.put("\"");
        let mut rest = text;
        while let Some((plain, special)) =
            memchr2(b'"', b'\\', rest.as_bytes()).and_then(|at| rest.split_at_checked(at))
        {
            let (special, next) = special.split_at(1);
            self.put(plain).put("\\").put(special);
            rest = next;
        }
        self.put(rest).put("\"")
    }

    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.0)
    }
}

/// That the limit of `policy` is used up, for people. `quote` stands around its name, which has no characters that would
/// have to be escaped anywhere.
pub(super) fn put_used_up(to: &mut Text, quote: &'static str, policy: &Policy, wait: Wait, retry_after: Option<u64>) {
    let algorithm = policy.algorithm();
    let is_never = wait == Wait::Never;
    to.put(if is_never {
        "this request costs more than limit "
    } else {
        "limit "
    });
    to.put(quote).put(policy.name()).put(quote);
    to.put(" of ").put_number(algorithm.limit());
    if is_never {
        to.put(" ever has");
        return;
    }
    if algorithm.holds() {
        to.put(" at once");
    } else {
        to.put(" per ").put_number(ceil_secs(algorithm.window())).put(" s");
    }
    to.put(" is used up");
    if let Some(secs) = retry_after {
        to.put("; retry in ").put_number(secs).put(" s");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_quoted_as_json(text in ".*|[ -~]*") {
            let quoted = Text::default().put_json(&text).finish();
            prop_assert_eq!(&serde_json::from_str::<String>(&quoted).unwrap(), &text);
            prop_assert_eq!(quoted, serde_json::Value::from(text).to_string());
        }
    }
}
