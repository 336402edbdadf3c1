//! Numbers in fields.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::HeaderValue;

/// Numbers below this are there already: most of those that are told.
const SMALL: usize = 1000;

/// Three digits for each.
static DIGITS: [u8; 3 * SMALL] = {
    let (mut digits, mut at) = ([b'0'; 3 * SMALL], 0);
    while at < digits.len() {
        let number = at / 3;
        digits[at] += (number / 100) as u8;
        digits[at + 1] += (number / 10 % 10) as u8;
        digits[at + 2] += (number % 10) as u8;
        at += 3;
    }
    digits
};

/// The digits of a small number.
fn digits(number: u64) -> Option<&'static [u8]> {
    let number = usize::try_from(number).ok().filter(|number| *number < SMALL)?;
    let zeros = usize::from(number < 100) + usize::from(number < 10);
    Some(&DIGITS[3 * number + zeros..3 * number + 3])
}

/// A small number, which costs no memory.
pub(super) fn small(number: u64) -> Option<HeaderValue> {
    HeaderValue::from_maybe_shared(Bytes::from_static(digits(number)?)).ok()
}

/// A Structured Fields integer (RFC 9651 §3.3.1), which has 15 digits at most.
pub(super) fn write(to: &mut BytesMut, number: u64) {
    match digits(number) {
        Some(digits) => to.put_slice(digits),
        None => to.put_slice(itoa::Buffer::new().format(number.min(999_999_999_999_999)).as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers(number in prop_oneof![any::<u64>(), 0..1_100_u64]) {
            let mut to = BytesMut::new();
            write(&mut to, number);
            let expected = number.min(999_999_999_999_999).to_string();
            prop_assert_eq!(to, expected.as_bytes());
        }
    }

    #[test]
    fn small_numbers() {
        for number in 0..1_000 {
            assert_eq!(small(number).unwrap(), number.to_string());
        }
        assert_eq!(small(1_000), None);
    }
}
