//! Which namespace it is, and whose.

use std::fmt;

use uuid::Uuid;

/// What a namespace says of itself, but for its size (NVM Command Set 1.1, 4.1.5.1; Base 2.1, 5.1.13.2.3). All zeroes is
/// an identifier that it does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Identity {
    /// Namespace Globally Unique Identifier.
    pub nguid: [u8; 16],
    /// IEEE Extended Unique Identifier.
    pub eui64: [u8; 8],
    /// Namespace UUID.
    pub uuid: Uuid,
    /// Metadata bytes of a block (LBAF.MS).
    pub ms: u16,
    /// Protection information type, 0 to 3 (DPS.PIT).
    pub pit: u8,
}

impl Identity {
    /// Whether a device that says `self` can be the one that a label was made for. An identifier that the label does not
    /// have says nothing: firmware may have brought it since.
    pub(super) fn is(&self, label: &Self) -> bool {
        let same = |label: &[u8], device: &[u8]| label.iter().all(|byte| *byte == 0) || label == device;
        same(&label.nguid, &self.nguid)
            && same(&label.eui64, &self.eui64)
            && same(label.uuid.as_bytes(), self.uuid.as_bytes())
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = false;
        for (what, bytes) in
            [("NGUID", &self.nguid[..]), ("EUI64", &self.eui64[..]), ("UUID", &self.uuid.as_bytes()[..])]
        {
            if bytes.iter().any(|byte| *byte != 0) {
                write!(f, "{}{what} ", if said { ", " } else { "" })?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                said = true;
            }
        }
        if said { Ok(()) } else { f.write_str("no identifier") }
    }
}

/// Who may write to a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// UUID of the node; nil for nobody.
    pub node: Uuid,
    /// What people call the node, at most [`OWNER_NAME_BYTES`](super::OWNER_NAME_BYTES) bytes; may be empty.
    pub name: String,
    /// One more with each owner: the key of its reservation.
    pub epoch: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_that_the_label_has_must_be_the_devices() {
        let label = Identity { nguid: [1; 16], eui64: [2; 8], uuid: Uuid::from_u128(3), ms: 8, pit: 1 };
        assert!(label.is(&label) && label.is(&Identity::default()));
        assert!(Identity { ms: 0, pit: 0, ..label }.is(&label), "the format is compared elsewhere");
        for other in [
            Identity { nguid: [9; 16], ..label },
            Identity { eui64: [0; 8], ..label },
            Identity { uuid: Uuid::nil(), ..label },
        ] {
            assert!(!other.is(&label), "{other}");
        }
        assert_eq!(Identity::default().to_string(), "no identifier");
        let two = Identity { nguid: [0; 16], uuid: Uuid::nil(), ..label };
        assert_eq!(two.to_string(), "EUI64 0202020202020202");
    }
}
