//! ASCII strings in fixed fields (NVM Express Base 2.1, 1.4.2): left justified and padded with
//! spaces, or, for NQNs, ended by a null.

use std::borrow::Cow;

/// The text of `field` up to a null, without the padding. What is not UTF-8, and every control
/// character, becomes U+FFFD, since the text came from a device and may go to a terminal.
pub(super) fn read(field: &[u8]) -> Cow<'_, str> {
    let end = field
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(field.len());
    let text = String::from_utf8_lossy(&field[..end]);
    if text.contains(char::is_control) {
        let shown: String = text
            .chars()
            .map(|c| if c.is_control() { '\u{FFFD}' } else { c })
            .collect();
        return Cow::Owned(shown.trim_matches(' ').to_owned());
    }
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim_matches(' ')),
        Cow::Owned(text) => Cow::Owned(text.trim_matches(' ').to_owned()),
    }
}

/// `text` left justified in a field padded with `padding`. `None` unless it is printable ASCII that
/// fits.
pub(super) fn padded<const N: usize>(text: &str, padding: u8) -> Option<[u8; N]> {
    if text.len() > N || !text.bytes().all(|byte| matches!(byte, 0x20..=0x7E)) {
        return None;
    }
    let mut field = [padding; N];
    field[..text.len()].copy_from_slice(text.as_bytes());
    Some(field)
}

#[cfg(test)]
mod tests {
    use super::{padded, read};

    #[test]
    fn padding_goes_and_comes() {
        assert_eq!(read(b"S4EV    "), "S4EV");
        assert_eq!(read(b"  S4 EV "), "S4 EV");
        assert_eq!(read(b"nqn.x\0garbage"), "nqn.x");
        assert_eq!(read(b"        "), "");
        assert_eq!(padded::<8>("S4EV", b' '), Some(*b"S4EV    "));
        assert_eq!(padded::<4>("nqn.x", 0), None);
        assert_eq!(padded::<8>("tab\t", b' '), None);
        assert_eq!(padded::<8>("\u{e9}", b' '), None);
    }

    #[test]
    fn a_terminal_gets_no_control_characters() {
        assert_eq!(read(b"\x1B[2Jx  "), "\u{FFFD}[2Jx");
        assert_eq!(read(b"a\xFFb "), "a\u{FFFD}b");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read(field: [u8; 20]) {
            proptest::prop_assert!(!read(&field).contains(char::is_control));
        }

        #[test]
        fn what_is_written_is_read(text in "[!-~]{1,20}") {
            let field = padded::<20>(&text, b' ').unwrap();
            proptest::prop_assert_eq!(read(&field), text);
        }
    }
}
