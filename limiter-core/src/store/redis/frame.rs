//! Reads replies to plain commands.

use fred::interfaces::Resp3Frame;

/// The items of a list.
pub(super) fn items(frame: &Resp3Frame) -> Option<&[Resp3Frame]> {
    match frame {
        Resp3Frame::Array { data, .. } => Some(data),
        _ => None,
    }
}

/// A text.
pub(super) fn text(frame: &Resp3Frame) -> Option<&str> {
    match frame {
        Resp3Frame::BlobString { data, .. } | Resp3Frame::SimpleString { data, .. } => std::str::from_utf8(data).ok(),
        _ => None,
    }
}

/// A whole number, as such or as text.
pub(super) fn integer(frame: &Resp3Frame) -> Option<i64> {
    match frame {
        Resp3Frame::Number { data, .. } => Some(*data),
        other => text(other)?.parse().ok(),
    }
}
