//! The text of a problem document, and of its sentences. Written piece by piece: a refusal has to cost next to nothing.

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

    /// In quotation marks, for people: a layer's name has no characters that would have to be escaped.
    pub(super) fn put_name(&mut self, name: &str) -> &mut Self {
        self.put("\"").put(name).put("\"")
    }

    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.0)
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
